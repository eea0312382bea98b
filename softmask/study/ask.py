"""Questions as users ask them: data, protocol and settings in, a study ready to run out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softmask.baselines.own import own_code
from softmask.baselines.registry import BASELINES, SOFT_MASK, check_options, find_model
from softmask.data.fold_files import Fold
from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.study.protocols import given_splits, holdout_splits, make_splits, splits_hash
from softmask.study.question import PROTOCOLS, Question
from softmask.study.settings import Settings
from softmask.study.study import Study, targets_of


def ask(
    store: GraphStore,
    settings: Settings | Sequence[Settings],
    protocol: str = "fair",
    folds: int = 10,
    runs: int = 1,
    repeats: int = 3,
    validation: float = 0.1,
    patience: int | None = None,
    halving: bool = False,
    given: Sequence[Fold] | None = None,
    ratios: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    precision: str = "auto",
    jobs: int = 1,
    folder: str | Path | None = None,
    weights: bool = False,
    force: bool = False,
) -> Study:
    """A study, ready to :meth:`~softmask.study.study.Study.run`.

    Args:
        store: the graphs, with classes or targets.
        settings: of the model and its training, or several to choose from on validation parts.
        protocol: ``fair`` (a validation part inside each training part chooses epoch and settings), ``paper`` (the
            epoch that is best in the mean over the test folds), ``both``, ``holdout`` (one train, validation and test
            part) or ``tune`` (settings ranked on validation parts; nothing is tested).
        folds: into how many parts the graphs are split (stratified for classes).
        runs: how often, each time with new folds and weights.
        repeats: trainings of the chosen settings for every fold of ``fair``.
        validation: share of each training part that chooses.
        patience: stop early when the validation part has not improved for so many epochs.
        halving: for several settings, train all of them shortly, the best third longer, and so on.
        given: folds to use instead of drawn ones.
        ratios: of train, validation and test, for ``holdout``.
        seed: of the first run.
        precision: of the arithmetic (see :class:`softmask.fleet.Fleet`).
        jobs: into how many jobs each fleet is cut, for several devices or machines.
        folder: of the record; by default one under ``studies`` whose name follows from the question.
        weights: keep the final weights of all models.
        force: compute kernels even where that is estimated to take beyond reason.
    """
    if store.y is None:
        raise SettingError("the graphs have no classes or targets to learn")
    if protocol not in PROTOCOLS:
        raise SettingError(f"unknown protocol {protocol!r}; known are {', '.join(PROTOCOLS)}")
    if runs < 1:
        raise SettingError(f"runs must be at least 1, got {runs}")
    settings = (settings,) if isinstance(settings, Settings) else tuple(settings)
    for model in dict.fromkeys(s.model for s in settings if s.model != SOFT_MASK):
        find_model(model).check(store)
    check_options((s.model for s in settings), patience=patience, precision=precision, weights=weights)
    y = targets_of(store)
    if given is not None:
        splits: list[dict[str, Any]] = given_splits(given, runs, seed)
    elif protocol == "holdout":
        splits = holdout_splits(y, ratios, runs, seed)
    else:
        splits = make_splits(y, folds, runs, seed)
    question = Question(
        data=store.info.get("name", "unnamed"),
        data_hash=store.content_hash(),
        graphs=store.num_graphs,
        task="regression" if store.y.is_floating_point() else "classification",
        protocol=protocol,
        settings=settings,
        folds=len(splits[0]["test"]),
        runs=runs,
        repeats=repeats,
        validation=validation,
        patience=patience,
        halving=halving,
        splits_hash=splits_hash(splits),
        seed=seed,
        precision=precision,
        jobs=jobs,
        code=_code(settings),
    )
    if folder is None:
        models = "-".join(dict.fromkeys(_short(s) for s in settings))
        folder = Path("studies") / f"{question.data}-{models}-{protocol}-{question.hash()[:8]}"
    return Study(question, splits, store, Path(folder), weights, force)


def _code(settings: Sequence[Settings]) -> str | None:
    """A hash of the source of the models that are one's own, if any are."""
    own = dict.fromkeys(s.model for s in settings if s.model != SOFT_MASK and s.model not in BASELINES)
    return "-".join(own_code(model) for model in own) or None


def _short(settings: Settings) -> str:
    """A model's name as a part of a folder's."""
    name = settings.variant if settings.model == SOFT_MASK else settings.model.rpartition(":")[2]
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)
