"""Monitors of joint training: what tells that it is collapsing, before its losses do.

Owns the signs and their limits. Knows no network. Known to happen: on fact checking every question comes to retrieve
the same documents (transformers #9405), and a gate comes to take one route for everything (self-rag #45).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from byheart.errors import TrainingError

LEAST_SHARE = 0.5  # of the first value, below which variety counts as lost
MOST_LOSS = 2.0  # nats above the first, on the way
END_LOSS = 0.02  # the same, in the end


@dataclass(frozen=True, slots=True)
class Signs:
    """What a run looks like at one moment.

    Attributes:
        loss: The objective, in nats per question.
        distinct_documents: Different passages ranked first, per question that retrieval has something for.
        slot_perplexity: Exponential of the entropy of the mean probability of candidate ranks and *not known*.
        routes: Mean probability of each route.
    """

    loss: float
    distinct_documents: float
    slot_perplexity: float
    routes: Mapping[str, float]


def signs(
    loss: Tensor, first: Tensor, has_passages: Tensor, slots: Tensor, routes: Tensor, names: tuple[str, ...]
) -> Signs:
    """Return the signs of a step over all questions.

    Args:
        loss: The objective.
        first: Number of the passage ranked first. Shape `batch`.
        has_passages: Whether there is one. Shape `batch`.
        slots: Probabilities of candidates and *not known*. Shape `batch facts+1`.
        routes: Probabilities of routes. Shape `batch routes`.
        names: The routes.

    Returns:
        The signs.
    """
    ranked = first[has_passages > 0]
    mean = slots.mean(dim=0)
    entropy = -(mean * mean.clamp(min=1e-12).log()).sum()
    rates = dict(zip(names, routes.mean(dim=0).tolist(), strict=True))
    variety = len(torch.unique(ranked)) / max(len(ranked), 1)
    return Signs(loss.item(), variety, math.exp(entropy.item()) if torch.isfinite(entropy) else math.nan, rates)


def check(now: Signs, start: Signs, step: int, rate: float, most: float = MOST_LOSS) -> None:
    """Raise an error that says what has collapsed.

    Args:
        now: The signs.
        start: Those before the first step.
        step: The step, for the message.
        rate: The learning rate, for the message.
        most: Nats that the loss may have risen.

    Raises:
        TrainingError: A number is not finite, the loss has risen by far, or variety is lost.
    """
    todo = f"the last good state is kept; train again from it at a lower learning rate than {rate:g}"
    numbers = (now.loss, now.distinct_documents, now.slot_perplexity, *now.routes.values())
    if not all(map(math.isfinite, numbers)):
        raise TrainingError(f"training collapsed at step {step}: a number is not finite ({now}); {todo}")
    if now.loss > start.loss + most:
        raise TrainingError(f"training collapsed at step {step}: loss {now.loss:.3f}, {start.loss:.3f} before; {todo}")
    for name in ("distinct_documents", "slot_perplexity"):
        value, first = getattr(now, name), getattr(start, name)
        if value < LEAST_SHARE * first and not (name == "slot_perplexity" and first < 1.5):
            what = name.replace("_", " ")
            raise TrainingError(f"training collapsed at step {step}: {what} {value:.3f}, {first:.3f} before; {todo}")
