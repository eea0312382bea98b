"""Whether two models differ by more than the luck of the split: the corrected resampled t-test."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from softmask.errors import SettingError


@dataclass(frozen=True)
class Comparison:
    """What paired scores of two models say about their difference.

    Args:
        difference: mean of the first model's scores minus the second's.
        standard_error: of that mean, with the correction; NaN for a single score.
        t: difference over standard error.
        degrees: degrees of freedom, one less than the number of scores.
        p: two-sided: how often two equally good models would differ at least this much. NaN where the scores
            cannot say: a single one, or differences that are all the same and not zero.
        interval: of the difference, 95 %; NaN where `p` is.
        n: number of paired scores.
    """

    difference: float
    standard_error: float
    t: float
    degrees: int
    p: float
    interval: tuple[float, float]
    n: int

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, with null for what is not a finite number."""
        values = asdict(self) | {"interval": list(self.interval)}

        def plain(value: Any) -> Any:
            if isinstance(value, list):
                return [plain(v) for v in value]
            return value if math.isfinite(value) else None

        return {name: plain(value) for name, value in values.items()}

    def sentence(self, name_a: str, name_b: str, higher_is_better: bool, unit: str = "") -> str:
        """What the evidence says and what it does not, in plain words.

        Args:
            name_a: the model whose scores came first.
            name_b: the other model.
            higher_is_better: True for an accuracy, False for an error.
            unit: of the scores. ``"%"`` is for fractions, whose difference is told in percentage points.
        """
        scale, words = (100.0, " percentage points") if unit == "%" else (1.0, f" {unit}" if unit else "")
        shown = _shown(scale, self)
        size = f"{shown(abs(self.difference))}{words}"
        scores = "1 paired score" if self.n == 1 else f"{self.n} paired scores"
        if self.difference == 0:
            found = f"{name_a} and {name_b} have the same mean over {scores}"
        else:
            way = "higher" if self.difference > 0 else "lower"
            better = "better" if (self.difference > 0) == higher_is_better else "worse"
            found = f"{name_a} is {size} {way} ({better}) than {name_b} in the mean over {scores}"
        if self.n == 1:
            return (
                f"{found}. One score has no spread to judge it by, so this does not say whether the models differ or "
                "only this split does; compare over more folds or runs."
            )
        if self.standard_error == 0 and self.difference == 0:
            return (
                f"{found}, and the same score on every one of them. There is no evidence of any difference; this "
                "does not say that the models are the same on other data."
            )
        if math.isnan(self.p):
            return (
                f"{found}, by the same amount on every one of them. Without any spread the test cannot say how much "
                "of it is luck, so no p-value is given; look at whether the scores are really those of two studies."
            )
        low, high = (shown(end) for end in self.interval)
        chance = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        found = f"{found} (95 % interval of the difference {low} to {high}{words}, {chance}, corrected for shared data)"
        if self.p < 0.05:
            ahead, behind = (name_a, name_b) if (self.difference > 0) == higher_is_better else (name_b, name_a)
            return (
                f"{found}. The evidence supports that {ahead} does better than {behind} on data like these: two "
                f"equally good models would differ this much or more in {_frequency(self.p)}. It does not say that "
                "the difference is large enough to matter, nor that it holds on other data."
            )
        return (
            f"{found}. The evidence does not tell the two apart: two equally good models would differ this much or "
            f"more in {_frequency(self.p)}. This does not say that they are equally good; differences anywhere in the "
            "interval fit these scores."
        )


def compare_scores(a: Any, b: Any, test_share: float) -> Comparison:
    r"""The corrected resampled t-test of Nadeau and Bengio (Inference for the Generalization Error, 2003).

    With :math:`d_j` the difference of the two models on the j-th of J test parts and :math:`s^2` the sample variance
    of the differences,

    .. math:: t = \bar d \,/ \sqrt{\left(\tfrac{1}{J} + \tfrac{n_{test}}{n_{train}}\right) s^2}

    is compared with Student's distribution of J - 1 degrees of freedom. The plain t-test has only the 1/J: it takes
    the scores for independent, though any two trainings share most of their graphs, and so calls far too many
    differences significant.

    What it assumes: the term :math:`n_{test}/n_{train}` stands for a correlation between scores that cannot be
    estimated from them; it supposes that the correlation is the share of the test part, :math:`n_{test}/(n_{test} +
    n_{train})`, which is a rule of thumb and no theorem. It was derived for test parts drawn at random again and
    again; for the folds of repeated cross validation it is the usual practice (Bouckaert and Frank, 2004), without
    a guarantee. It further takes the differences as about normal, and every score as one of the whole procedure:
    what chooses an epoch or a setting must not have seen the test part. It speaks of models trained on about this
    many graphs drawn like these, not of other data.

    Args:
        a: ``[runs, folds]``, the scores of one model.
        b: those of the other, on the same test parts.
        test_share: share of all graphs in one test part: 0.1 for ten folds. All other graphs count as those to train
            on, a validation part among them, since it serves the training.

    Differences that do not spread (up to rounding) give a standard error of zero: all zero is no evidence (p = 1),
    all equal otherwise cannot be judged (p is NaN); so is a single score.
    """
    from scipy.stats import t as student

    first, second = (_scores(scores, name) for scores, name in ((a, "first"), (b, "second")))
    if first.shape != second.shape:
        raise SettingError(
            f"scores of shapes {list(first.shape)} and {list(second.shape)} cannot be paired: both models must have "
            "been tested on the same folds"
        )
    if not 0 < test_share < 1:
        raise SettingError(f"test_share must lie between 0 and 1, got {test_share}")
    differences = (first - second).ravel()
    n = differences.size
    mean = float(differences.mean())
    if n == 1:
        return Comparison(mean, math.nan, math.nan, 0, math.nan, (math.nan, math.nan), 1)
    # Differences of equal fractions differ by rounding; that is not a spread.
    rounding = 1e-12 * max(float(np.abs(first).max()), float(np.abs(second).max()))
    spread = float(differences.std(ddof=1))
    if spread <= rounding:
        if abs(mean) <= rounding:
            return Comparison(0.0, 0.0, 0.0, n - 1, 1.0, (0.0, 0.0), n)
        return Comparison(mean, 0.0, math.copysign(math.inf, mean), n - 1, math.nan, (math.nan, math.nan), n)
    error = spread * math.sqrt(1 / n + test_share / (1 - test_share))
    t = mean / error
    reach = float(student.ppf(0.975, n - 1)) * error
    return Comparison(mean, error, t, n - 1, float(2 * student.sf(abs(t), n - 1)), (mean - reach, mean + reach), n)


def _scores(scores: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise SettingError(f"the {name} scores are not a table of numbers, runs by folds") from None
    if array.ndim != 2 or array.size == 0:
        raise SettingError(f"the {name} scores have shape {list(array.shape)}: [runs, folds] was expected")
    if not np.isfinite(array).all():
        run, fold = (int(i[0]) for i in np.nonzero(~np.isfinite(array)))
        raise SettingError(
            f"the {name} scores have {array[run, fold]} in run {run}, fold {fold}, as of a model that diverged: they "
            "cannot be compared"
        )
    return array


def _shown(scale: float, comparison: Comparison) -> Any:
    # As many decimals as the standard error has meaning for, one at least.
    size = scale * (comparison.standard_error or abs(comparison.difference))
    if not size > 0:
        size = scale * abs(comparison.difference)
    digits = min(max(1 - math.floor(math.log10(size)), 1), 12) if size > 0 else 1
    # Adding zero turns -0.0 into 0.0.
    return lambda value: f"{round(scale * value, digits) + 0.0:.{digits}f}"


def _frequency(p: float) -> str:
    if p < 0.001:
        return "fewer than 1 of 1000 such comparisons"
    if p < 0.05:
        return f"about 1 of {round(1 / p)} such comparisons"
    return f"about {max(round(100 * p), 5)} of 100 such comparisons"
