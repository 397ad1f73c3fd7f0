"""How sure a figure is: paired bootstrap over questions, and the exact binomial interval.

Owns resampling. Knows no measure: it is given numbers per question, or a statistic of resampled questions.
Source: Efron & Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3; Clopper & Pearson 1934.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from byheart.errors import EvaluationError

Values = npt.NDArray[np.float64]
Picks = npt.NDArray[np.int64]
Statistic = Callable[[Picks], Values]

RESAMPLES = 4_000
CONFIDENCE = 0.95
_PICKS_AT_ONCE = 2_000_000  # bounds memory: 16 MB of indices
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its interval.

    Attributes:
        value: The figure.
        low: Lower end, None where no interval applies.
        high: Upper end, None where no interval applies.
        n: Questions it rests on.
    """

    value: float
    low: float | None
    high: float | None
    n: int


def bootstrap(n: int, statistic: Statistic, rng: np.random.Generator, resamples: int = RESAMPLES) -> Interval:
    """Return a statistic of `n` questions with its 95 % percentile interval.

    Args:
        n: Questions.
        statistic: Given question numbers of shape `resamples questions`, returns one number per row. Shape `resamples`.
        rng: Generators of one seed draw the same questions, which makes two figures over the same questions paired.
        resamples: How often `n` questions are drawn with replacement.

    Returns:
        The statistic of all questions, each once, and the interval. Draws in which it is undefined (NaN) are left out.

    Raises:
        EvaluationError: There is no question.
    """
    if n < 1:
        raise EvaluationError("an interval needs questions, got none; check the split and the limit")
    value = float(statistic(np.arange(n)[None, :])[0])
    rows = max(1, _PICKS_AT_ONCE // n)
    drawn = [statistic(rng.integers(n, size=(min(rows, resamples - done), n))) for done in range(0, resamples, rows)]
    figures = np.concatenate(drawn)
    defined = figures[~np.isnan(figures)]
    if not len(defined):
        return Interval(value, None, None, n)
    low, high = np.quantile(defined, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return Interval(value, float(low), float(high), n)


def mean(values: npt.ArrayLike, rng: np.random.Generator) -> Interval:
    """Return the mean over questions with its interval; `values` has one number per question."""
    held = np.asarray(values, np.float64)
    return bootstrap(len(held), lambda picks: held[picks].mean(axis=1), rng)


def difference(first: npt.ArrayLike, second: npt.ArrayLike, rng: np.random.Generator) -> Interval:
    """Return the mean of `first - second` over the same questions, with its paired interval.

    Args:
        first: One number per question.
        second: One number per question, the same questions in the same order.
        rng: Draws the questions.

    Returns:
        The difference; above 0 where `first` is larger.

    Raises:
        EvaluationError: The two do not have the same number of questions.
    """
    left, right = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if left.shape != right.shape:
        raise EvaluationError(
            f"a paired difference needs the same questions on both sides, got {len(left)} and {len(right)}; align them"
        )
    return mean(left - right, rng)


def quantile(values: npt.ArrayLike, share: float, rng: np.random.Generator) -> Interval:
    """Return a quantile over questions with its interval; `share` is 0.5 for the median."""
    held = np.asarray(values, np.float64)
    return bootstrap(len(held), lambda picks: np.quantile(held[picks], share, axis=1), rng)


def ratio(counted: npt.ArrayLike, among: npt.ArrayLike, rng: np.random.Generator) -> Interval:
    """Return the sum of `counted` over the sum of `among` with its interval; NaN where `among` is all zero.

    Args:
        counted: One number per question, such as whether it was answered and right.
        among: One number per question, such as whether it was answered.
        rng: Draws the questions.

    Returns:
        The ratio; `n` is the number of all questions.
    """
    above, below = np.asarray(counted, np.float64), np.asarray(among, np.float64)

    def statistic(picks: Picks) -> Values:
        totals = below[picks].sum(axis=1)
        quotients: Values = np.where(totals > 0, above[picks].sum(axis=1) / np.where(totals > 0, totals, 1), np.nan)
        return quotients

    return bootstrap(len(above), statistic, rng)


def binomial(successes: int, n: int) -> Interval:
    """Return a share with its exact (Clopper-Pearson) 95 % interval.

    Args:
        successes: How many of `n`.
        n: Trials.

    Returns:
        The share and its interval.

    Raises:
        EvaluationError: There is no trial, or there are more successes than trials.
    """
    if n < 1 or not 0 <= successes <= n:
        raise EvaluationError(f"a share needs 0 <= successes <= n and n >= 1, got {successes} of {n}; check the counts")
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if successes == 0 else 1 - _upper(n - successes, n, tail)
    high = 1.0 if successes == n else _upper(successes, n, tail)
    return Interval(successes / n, low, high, n)


def _upper(successes: int, n: int, tail: float) -> float:
    """Return the probability at which at most `successes` of `n` are as rare as `tail`."""
    ways = _log_ways(successes, n)
    low, high = successes / n, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _at_most(middle, ways, n) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _log_ways(successes: int, n: int) -> Values:
    """Return the logarithms of the numbers of ways to choose 0, 1, … `successes` of `n`."""
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(successes + 1)]
    return np.array(logs)


def _at_most(probability: float, ways: Values, n: int) -> float:
    """Return the binomial probability of as many successes as `ways` has entries, less one, or fewer."""
    if probability >= 1:
        return 0.0
    i = np.arange(len(ways))
    return math.fsum(np.exp(ways + i * math.log(probability) + (n - i) * math.log1p(-probability)))
