"""Answering only where a score is high enough: what is covered at which precision, and how well scores tell apart.

Owns thresholds, ties and resampling by fact. Knows no memory and no cache: it is given a score per query, whether the
answer would be right, and whether there was a right one at all. Queries whose scores are equal are answered together; a
score of minus infinity is an answer that can't be given.
Source: El-Yaniv & Wiener 2010, "On the Foundations of Noise-free Selective Classification"; Hanley & McNeil 1982.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.errors import EvaluationError
from byheart.evaluate.intervals import Interval, Picks, Statistic, Values, bootstrap

RESAMPLES = 1_000
_ROUNDING = 1e-9  # answers: 0.95 * 40 may come out a little above 38

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rated:
    """Queries with what a system makes of them, checked.

    Attributes:
        scores: How sure the system is; minus infinity where it has no answer. Shape `queries`.
        right: Whether its answer is right; only known queries have a right one. Shape `queries`.
        known: Whether there is a right answer. Shape `queries`.
        groups: Number of the fact each query is about, from 0; its queries are resampled together. Shape `queries`.
    """

    scores: Values
    right: Flags
    known: Flags
    groups: Picks

    @classmethod
    def of(
        cls, scores: npt.ArrayLike, right: npt.ArrayLike, known: npt.ArrayLike, groups: npt.ArrayLike | None = None
    ) -> Rated:
        """Return rated queries.

        Args:
            scores: See `Rated`.
            right: See `Rated`.
            known: See `Rated`.
            groups: Names or numbers of facts; every query is one of its own where None.

        Returns:
            The checked queries.

        Raises:
            EvaluationError: Lengths differ, a score is no number, or an unknown query counts as right.
        """
        held, hits, wanted = np.asarray(scores, np.float64), np.asarray(right, np.bool_), np.asarray(known, np.bool_)
        names = np.arange(len(held)) if groups is None else np.asarray(groups)
        sizes = {len(held), len(hits), len(wanted), len(names)}
        if len(sizes) > 1:
            raise EvaluationError(f"scores, right, known and groups must be as many, got {sorted(sizes)}; align them")
        if np.isnan(held).any() or (held == np.inf).any():
            raise EvaluationError("a score must be a number or minus infinity, got NaN or infinity; check the system")
        if (hits & ~wanted).any():
            raise EvaluationError("a query that nothing answers can't be answered right; check which queries are known")
        numbers = np.unique(names, return_inverse=True)[1].astype(np.int64).reshape(-1)
        return cls(held, hits, wanted, numbers)

    @property
    def n_groups(self) -> int:
        """Facts that the queries are about."""
        return int(self.groups.max()) + 1 if len(self.groups) else 0


def coverage_at_precision(scores: npt.ArrayLike, right: npt.ArrayLike, known: npt.ArrayLike, precision: float) -> float:
    """Return the largest share of known queries that are answered right while enough of all answers are right.

    Args:
        scores: How sure the system is. Shape `queries`.
        right: Whether its answer is right. Shape `queries`.
        known: Whether there is a right answer. Shape `queries`.
        precision: Least share of right ones among the answers, above 0 and up to 1.

    Returns:
        0 to 1; 0 where no threshold reaches the precision.

    Raises:
        EvaluationError: No query is known, or the precision is not above 0 and up to 1.
    """
    rated = Rated.of(scores, right, known)
    _check(rated, precision)
    return float(_coverages(rated, np.ones((1, len(rated.scores))), precision)[0])


def threshold_at_precision(rated: Rated, precision: float) -> float:
    """Return the threshold that answers most queries right while enough of all answers are right.

    Args:
        rated: Queries.
        precision: Least share of right ones among the answers, above 0 and up to 1.

    Returns:
        The highest such score; infinity where no threshold reaches the precision.
    """
    _check(rated, precision)
    thresholds, answered, right = _counts(rated, np.ones((1, len(rated.scores))))
    held = np.where(right >= precision * answered - _ROUNDING, right, 0)[0]
    return float(thresholds[held.argmax()]) if held.any() else float("inf")


def coverage_interval(rated: Rated, precision: float, rng: np.random.Generator) -> Interval:
    """Return coverage at a precision with its bootstrap interval over facts; the threshold is chosen in every draw.

    Args:
        rated: Queries.
        precision: Least share of right ones among the answers, above 0 and up to 1.
        rng: Draws the facts.

    Returns:
        The coverage; `n` counts all queries, known or not.
    """
    _check(rated, precision)
    return _resampled(rated, lambda picks: _coverages(rated, _weights(rated, picks), precision), rng)


def coverage_lead(first: Rated, second: Rated, precision: float, rng: np.random.Generator) -> Interval:
    """Return by how much the first system covers more than the second at a precision, paired by fact.

    Args:
        first: Queries with what the first system makes of them.
        second: The same queries with what the second makes of them.
        precision: Least share of right ones among the answers, above 0 and up to 1.
        rng: Draws the facts.

    Returns:
        The difference; above 0 where the first covers more.

    Raises:
        EvaluationError: The two do not have the same queries, or none is known.
    """
    _check(first, precision)
    if not (np.array_equal(first.groups, second.groups) and np.array_equal(first.known, second.known)):
        raise EvaluationError("a paired difference needs the same queries on both sides; align them")

    def statistic(picks: Picks) -> Values:
        weights = _weights(first, picks)
        return _coverages(first, weights, precision) - _coverages(second, weights, precision)

    return _resampled(first, statistic, rng)


def auc(positive: npt.ArrayLike, negative: npt.ArrayLike) -> float:
    """Return how often a positive scores above a negative; a tie counts half.

    Args:
        positive: Scores that should be high, at least one.
        negative: Scores that should be low, at least one.

    Returns:
        The area under the ROC curve, 0 to 1.

    Raises:
        EvaluationError: There is no positive or no negative.
    """
    above, below = np.asarray(positive, np.float64), np.asarray(negative, np.float64)
    known = np.arange(len(above) + len(below)) < len(above)
    rated = Rated.of(np.concatenate([above, below]), np.zeros(len(known), np.bool_), known)
    _check_sides(rated)
    return float(_areas(rated, np.ones((1, len(known))))[0])


def auc_interval(rated: Rated, rng: np.random.Generator) -> Interval:
    """Return how often a known query scores above an unknown one, with its bootstrap interval over facts.

    Args:
        rated: Queries.
        rng: Draws the facts.

    Returns:
        The area under the ROC curve, 0 to 1.

    Raises:
        EvaluationError: No query is known, or all are.
    """
    _check_sides(rated)
    return _resampled(rated, lambda picks: _areas(rated, _weights(rated, picks)), rng)


def _check(rated: Rated, precision: float) -> None:
    if not 0 < precision <= 1:
        raise EvaluationError(f"a precision is above 0 and up to 1, got {precision}; pass 0.95 for 95 %")
    if not rated.known.any():
        raise EvaluationError("coverage needs queries that are known, got none; check the split and the limit")


def _check_sides(rated: Rated) -> None:
    n_known = int(rated.known.sum())
    if not 0 < n_known < len(rated.known):
        raise EvaluationError(
            f"scores are told apart on both sides, got {n_known} known of {len(rated.known)}; check the split"
        )


def _resampled(rated: Rated, statistic: Statistic, rng: np.random.Generator) -> Interval:
    return replace(bootstrap(rated.n_groups, statistic, rng, RESAMPLES), n=len(rated.scores))


def _weights(rated: Rated, picks: Picks) -> Values:
    """Return how often each query is in a draw of facts. Shapes `resamples groups` to `resamples queries`."""
    rows, n_groups = len(picks), rated.n_groups
    flat = (np.arange(rows)[:, None] * n_groups + picks).ravel()
    counts = np.bincount(flat, minlength=rows * n_groups).reshape(rows, n_groups)
    weights: Values = counts[:, rated.groups].astype(np.float64)
    return weights


def _counts(rated: Rated, weights: Values) -> tuple[Values, Values, Values]:
    """Return the thresholds, falling, and how many are answered, and right, at each. Shapes `t`, `resamples t`."""
    order = np.argsort(-rated.scores, kind="stable")
    order = order[: int(np.isfinite(rated.scores).sum())]
    scores = rated.scores[order]
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True)) if len(scores) else np.zeros(0, np.int64)
    held = weights[:, order]
    return scores[ends], held.cumsum(axis=1)[:, ends], (held * rated.right[order]).cumsum(axis=1)[:, ends]


def _coverages(rated: Rated, weights: Values, precision: float) -> Values:
    _, answered, right = _counts(rated, weights)
    best = np.where(right >= precision * answered - _ROUNDING, right, 0).max(axis=1, initial=0)
    known = (weights * rated.known).sum(axis=1)
    coverages: Values = np.where(known > 0, best / np.maximum(known, 1), np.nan)
    return coverages


def _areas(rated: Rated, weights: Values) -> Values:
    order = np.argsort(rated.scores, kind="stable")
    scores = rated.scores[order]
    starts = np.flatnonzero(np.append(True, scores[1:] != scores[:-1]))
    held, known = weights[:, order], rated.known[order]
    positive = np.add.reduceat(held * known, starts, axis=1)
    negative = np.add.reduceat(held * ~known, starts, axis=1)
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    won = (positive * (negative.cumsum(axis=1) - negative / 2)).sum(axis=1)
    areas: Values = np.where(pairs > 0, won / np.maximum(pairs, 1), np.nan)
    return areas
