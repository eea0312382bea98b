"""The other systems of the paper's tables, behind the same study."""

from softmask.baselines.registry import BASELINES, Baseline, Inputs, baseline_settings, find_model, register_model

__all__ = ["BASELINES", "Baseline", "Inputs", "baseline_settings", "find_model", "register_model"]
