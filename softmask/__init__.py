"""Soft-mask graph neural networks: predict properties of whole graphs and see which substructures were used."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from softmask.estimator import SoftMaskClassifier, SoftMaskRegressor, load_model

__all__ = ["SoftMaskClassifier", "SoftMaskRegressor", "__version__", "load_model"]


def __getattr__(name: str) -> Any:
    # Importing torch takes seconds, so `softmask --help` and `softmask.__version__` must not do it.
    if name in __all__:
        from softmask import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'softmask' has no attribute {name!r}")
