"""Fitting the fusion weight on questions whose passage is known.

Owns the choice of one number, as a pure function. Knows no engine; it sees candidates with both scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byheart.errors import InputError
from byheart.retrieval.fusion import Candidate

GRID = tuple(step / 50 for step in range(51))


@dataclass(frozen=True, slots=True)
class FittedWeight:
    """A fusion weight and what it reached on the questions it was fitted on.

    Attributes:
        dense_weight: Share of the cosine.
        recall_at_1: Share of questions whose passage came first.
        recall_at_5: Share of questions whose passage was among the first five.
        mrr: Mean reciprocal rank, 0 where the passage was no candidate.
        n: Questions.
    """

    dense_weight: float
    recall_at_1: float
    recall_at_5: float
    mrr: float
    n: int


def fit_dense_weight(
    candidates: Sequence[Sequence[Candidate]], gold: Sequence[str], grid: Sequence[float] = GRID
) -> FittedWeight:
    """Return the weight with the best recall@1, ties by recall@5, then mean reciprocal rank, then the larger weight.

    Args:
        candidates: Per question, candidates of a retriever whose weight is strictly between 0 and 1.
        gold: Per question, the id of its passage.
        grid: Weights to try, from 0 to 1.

    Returns:
        The weight and its figures.

    Raises:
        InputError: There is no question, no weight, or not one gold id per question.
    """
    if not candidates or not grid or len(candidates) != len(gold):
        raise InputError(
            f"fitting needs questions with one gold id each and a grid, got {len(candidates)} questions, "
            f"{len(gold)} ids and {len(grid)} weights; give at least a few dozen training questions"
        )
    tried = [_figures(candidates, gold, weight) for weight in grid]
    return max(tried, key=lambda f: (f.recall_at_1, f.recall_at_5, f.mrr, f.dense_weight))


def _figures(candidates: Sequence[Sequence[Candidate]], gold: Sequence[str], weight: float) -> FittedWeight:
    ranks = [_rank(found, wanted, weight) for found, wanted in zip(candidates, gold, strict=True)]
    n = len(ranks)
    return FittedWeight(
        weight,
        sum(rank == 1 for rank in ranks) / n,
        sum(0 < rank <= 5 for rank in ranks) / n,
        sum(1 / rank for rank in ranks if rank) / n,
        n,
    )


def _rank(candidates: Sequence[Candidate], wanted: str, weight: float) -> int:
    """Return the place of the wanted passage from 1, 0 when it is no candidate."""
    own = next((c for c in candidates if c.passage_id == wanted), None)
    if own is None:
        return 0
    score = own.fused(weight)
    return 1 + sum((c.fused(weight), wanted) > (score, c.passage_id) for c in candidates if c is not own)
