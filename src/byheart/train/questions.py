"""Offers laid out as tensors, padded: what the joint objective is computed on.

Owns shapes and masks. Knows no formula and no knowledge base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from byheart.gate.evidence import columns
from byheart.offering import Offer


@dataclass(frozen=True, slots=True)
class Questions:
    """Offers as tensors, padded.

    Attributes:
        queries: Shape `batch width`.
        evidence: The gate's columns with a one at the end. Shape `batch columns+1`.
        is_open: Routes that can be taken, to abstain last. Shape `batch routes+1`.
        scores: Shape `batch facts`.
        gaps: Shape `batch facts`.
        is_right: Shape `batch facts`.
        facts: Mask. Shape `batch facts`.
        grounds: Likelihoods beside the words of facts. Shape `batch grounds`.
        near: Cosines of these facts. Shape `batch grounds`.
        has_grounds: Mask. Shape `batch grounds`.
        vectors: Shape `batch passages width`.
        lexical: Shape `batch passages`.
        reads: Shape `batch passages`.
        passages: Mask. Shape `batch passages`.
        numbers: Which passage each is, the same for the same. Shape `batch passages`.
    """

    queries: Tensor
    evidence: Tensor
    is_open: Tensor
    scores: Tensor
    gaps: Tensor
    is_right: Tensor
    facts: Tensor
    grounds: Tensor
    near: Tensor
    has_grounds: Tensor
    vectors: Tensor
    lexical: Tensor
    reads: Tensor
    passages: Tensor
    numbers: Tensor


def laid_out(offers: Sequence[Offer]) -> Questions:
    """Return offers as tensors."""
    facts, passages, words = (
        max([1, *(len(getattr(offer, name)) for offer in offers)]) for name in ("scores", "reads", "grounds")
    )
    rows = np.hstack([columns([offer.evidence for offer in offers]), np.ones((len(offers), 1))])
    names: dict[str, int] = {}
    numbers = [[names.setdefault(p, len(names)) for p in offer.passage_ids] for offer in offers]
    width = len(offers[0].query) if offers else 1
    vectors = np.zeros((len(offers), passages, width), np.float32)
    for i, offer in enumerate(offers):
        vectors[i, : len(offer.vectors)] = offer.vectors
    is_open = np.stack(
        [np.array([len(one.scores) > 0, one.evidence.cited and len(one.grounds) > 0, len(one.reads) > 0, True])
         for one in offers]
    )  # fmt: skip
    return Questions(
        queries=_tensor(np.stack([offer.query for offer in offers])),
        evidence=_tensor(rows),
        is_open=_tensor(is_open),
        scores=_tensor(_padded([offer.scores for offer in offers], facts)),
        gaps=_tensor(_padded([offer.gaps for offer in offers], facts)),
        is_right=_tensor(_padded([offer.is_right for offer in offers], facts)),
        facts=_tensor(_padded([np.ones(len(offer.scores)) for offer in offers], facts)),
        grounds=_tensor(_padded([offer.grounds for offer in offers], words)),
        near=_tensor(_padded([offer.near for offer in offers], words)),
        has_grounds=_tensor(_padded([np.ones(len(offer.grounds)) for offer in offers], words)),
        vectors=_tensor(vectors),
        lexical=_tensor(_padded([offer.lexical for offer in offers], passages)),
        reads=_tensor(_padded([offer.reads for offer in offers], passages)),
        passages=_tensor(_padded([np.ones(len(offer.reads)) for offer in offers], passages)),
        numbers=_tensor(_padded([np.array(row, np.float64) for row in numbers], passages)),
    )


def _tensor(values: npt.ArrayLike) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float32)


def _padded(rows: Sequence[npt.ArrayLike], width: int) -> npt.NDArray[np.float64]:
    found = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        held = np.asarray(row)
        found[i, : len(held)] = held
    return found
