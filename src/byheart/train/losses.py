"""The terms of the joint objective, as pure functions of tensors: see docs/joint-training.md for the formulas.

Owns formulas. Knows no knowledge base, no optimiser and no clock. Everything is in natural logarithms. Rows without a
single candidate are defined: their likelihood is that of *nothing to say*.
Dimension names: batch facts passages routes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NOTHING = -20.0  # the log-likelihood of a route that has nothing to say, as low as a reader's own


def slot_probabilities(scores: Tensor, gaps: Tensor, mask: Tensor, calibration: Tensor) -> Tensor:
    """Return the probability of each fact, with *not known* last.

    Args:
        scores: Log-odds as the kernel gave them, before the gap. Shape `batch facts`.
        gaps: How much farther each fact lies than the nearest. Shape `batch facts`.
        mask: 1 for a fact, 0 for padding or a hidden one. Shape `batch facts`.
        calibration: Slope, offset and gap weight. Shape `3`.

    Returns:
        Shape `batch facts+1`; each row sums to 1.
    """
    logits = calibration[0] * scores + calibration[1] - calibration[2] * gaps
    logits = torch.where(mask > 0, logits, torch.full_like(logits, -torch.inf))
    return torch.softmax(torch.cat([logits, torch.zeros_like(logits[:, :1])], dim=1), dim=1)


def memory_likelihood(slots: Tensor, is_right: Tensor) -> Tensor:
    """Return log p(Y | x) of memory: the share of the facts whose answer is right. Shape `batch`."""
    return ((slots[:, :-1] * is_right).sum(dim=1) + 1e-9).log().clamp(min=NOTHING)


def recall_likelihood(slots: Tensor, is_right: Tensor) -> Tensor:
    """Return the log-probability of memory's right output: right facts, or *not known* without any. Shape `batch`."""
    known = (slots[:, :-1] * is_right).sum(dim=1)
    return (torch.where(is_right.any(dim=1), known, slots[:, -1]) + 1e-9).log().clamp(min=NOTHING)


def mixed_likelihood(weights: Tensor, reads: Tensor, mask: Tensor) -> Tensor:
    """Return log Σ p(d | x) · p(Y | x, d), with p(d | x) a softmax over what is there.

    Args:
        weights: Logits of p(d | x). Shape `batch passages`.
        reads: log p(Y | x, d). Shape `batch passages`.
        mask: 1 where there is a passage. Shape `batch passages`.

    Returns:
        Shape `batch`; `NOTHING` where there is no passage. Source: Lewis et al. 2020, section 2.1.
    """
    present = mask > 0
    priors = torch.log_softmax(torch.where(present, weights, torch.full_like(weights, -1e4)), dim=1)
    joint = torch.where(present, priors + reads, torch.full_like(reads, NOTHING * 10))
    return torch.logsumexp(joint, dim=1).clamp(min=NOTHING, max=0.0)


def retrieval_logits(
    queries: Tensor, vectors: Tensor, lexical: Tensor, dense_weight: float, sharpness: float
) -> Tensor:
    """Return logits of p(d | x): fused scores, sharpened. Shapes `batch width`, `batch passages width`, `…` to `…`."""
    cosines = torch.einsum("bw,bpw->bp", queries, vectors)
    return sharpness * (dense_weight * cosines + (1 - dense_weight) * lexical)


def adapted(queries: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Return `normalize(q + (q·A)·B)`: the query adapter. Shapes as in `retrieval.adapter`."""
    return nn.functional.normalize(queries + (queries @ down) @ up, dim=1)


def route_probabilities(chances: Tensor, is_open: Tensor, costs: Tensor, price: float, temperature: float) -> Tensor:
    """Return π: a softmax over what each route is worth, its chance of being right less its cost.

    Args:
        chances: Probability of being right. Shape `batch routes`.
        is_open: 1 where a route can be taken. Shape `batch routes`.
        costs: In retrievals. Shape `routes`.
        price: λ, of one retrieval.
        temperature: Of the softmax.

    Returns:
        Shape `batch routes`.
    """
    worth = (chances - price * costs) / temperature
    return torch.softmax(torch.where(is_open > 0, worth, torch.full_like(worth, -1e4)), dim=1)


def mixture_loss(routes: Tensor, likelihoods: Tensor) -> Tensor:
    """Return the mean of -log Σ_r π_r(x) · p_r(Y | x). Both of shape `batch routes`."""
    return -torch.logsumexp(routes.clamp(min=1e-12).log() + likelihoods, dim=1).mean()


def expected_cost(routes: Tensor, costs: Tensor) -> Tensor:
    """Return the mean of Σ_r π_r(x) · cost_r: retrievals per question."""
    return (routes * costs).sum(dim=1).mean()


def divergence(weights: Tensor, start: Tensor, mask: Tensor) -> Tensor:
    """Return the mean KL(p0(d | x) ‖ p(d | x)): how far retrieval has moved from where it began."""
    present = mask > 0
    low = torch.full_like(weights, -1e4)
    now = torch.log_softmax(torch.where(present, weights, low), dim=1)
    then = torch.log_softmax(torch.where(present, start, low), dim=1)
    terms = torch.where(present, then.exp() * (then - now), torch.zeros_like(now))
    return terms.sum(dim=1).mean()


def chance_loss(logits: Tensor, likelihoods: Tensor, is_open: Tensor) -> Tensor:
    """Return how badly chances tell likelihoods: cross-entropy to p_r(Y | x), which is held fixed."""
    terms = nn.functional.binary_cross_entropy_with_logits(logits, likelihoods.detach().exp(), reduction="none")
    return (terms * is_open).sum() / is_open.sum().clamp(min=1)
