"""Fitting the memory's keys: a projection that puts paraphrases near each other, and the fixed codebooks.

Owns both fits; they work on the encoder's pooled vectors, which do not change, and take seconds.
Source: Oord et al. 2018, InfoNCE, section 2.3; Lample et al. 2019, product keys, section 3.1.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from byheart.interfaces import Floats
from byheart.memory.product_keys import fit_codebooks
from byheart.train.memory_pairs import Pair

STEPS = 600
BATCH = 512
TEMPERATURE = 0.05
RATE = 1e-3
SUB_KEYS = 256


@dataclass(frozen=True, slots=True)
class Keys:
    """What addressing needs.

    Attributes:
        projection: From pooled vectors to keys. Shape `key_width width`.
        first: Sub-keys of the first half of a key. Shape `sub_keys key_width/2`.
        second: Of the second half.
    """

    projection: Tensor
    first: Tensor
    second: Tensor


def fit_keys(pairs: Sequence[Pair], embed: Callable[[str, Sequence[str]], Floats], key_width: int, seed: int) -> Keys:
    """Return projection and codebooks, fitted on the training questions.

    Args:
        pairs: Questions beside facts; the right ones are used.
        embed: Vectors of texts, cached under a name; shape `batch width`.
        key_width: Numbers of a key.
        seed: Of batches and clusters.

    Returns:
        The keys' parameters.
    """
    queries, facts = _pooled([pair for pair in pairs if pair.is_same], embed)
    projection = fit_projection(queries, facts, key_width, seed)
    keys = torch.nn.functional.normalize(torch.cat([queries, facts]) @ projection.T, dim=1)
    books = fit_codebooks(keys.numpy(), SUB_KEYS, seed)
    return Keys(projection, torch.from_numpy(books.first), torch.from_numpy(books.second))


def fit_projection(queries: Tensor, facts: Tensor, key_width: int, seed: int) -> Tensor:
    """Return a projection under which a question is nearer to its own fact than to the others of its batch.

    Args:
        queries: Pooled vectors of questions. Shape `pairs width`.
        facts: Pooled vectors of their facts' questions. Shape `pairs width`.
        key_width: Numbers of a key.
        seed: Of the batches.

    Returns:
        Shape `key_width width`; it starts from the principal components.
    """
    generator = torch.Generator().manual_seed(seed)
    both = torch.cat([queries, facts])
    _, _, components = torch.linalg.svd(both - both.mean(0), full_matrices=False)
    projection = components[:key_width].clone().requires_grad_(True)
    optimizer = torch.optim.Adam([projection], lr=RATE)
    for _ in range(STEPS):
        rows = torch.randperm(len(queries), generator=generator)[:BATCH]
        first, second = (torch.nn.functional.normalize(x[rows] @ projection.T, dim=1) for x in (queries, facts))
        cosines = first @ second.T / TEMPERATURE
        right = torch.arange(len(rows))
        # Two pairs of one fact are not each other's negatives.
        same = (facts[rows] @ facts[rows].T > 0.999) & ~torch.eye(len(rows), dtype=torch.bool)
        cosines = cosines.masked_fill(same, -1e4)
        loss = torch.nn.functional.cross_entropy(cosines, right) + torch.nn.functional.cross_entropy(cosines.T, right)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return _rotated(projection.detach(), both)


def _rotated(projection: Tensor, pooled: Tensor) -> Tensor:
    """Return the projection turned so that both halves of a key carry as much; cosines stay as they are.

    Source: Ge et al. 2013, optimized product quantization, section 3.3 (eigenvalue allocation).
    """
    keys = torch.nn.functional.normalize(pooled @ projection.T, dim=1)
    _, _, components = torch.linalg.svd(keys, full_matrices=False)
    turned: Tensor = components @ projection
    order = [*range(0, len(turned), 2), *range(1, len(turned), 2)]
    return turned[order]


def _pooled(pairs: Sequence[Pair], embed: Callable[[str, Sequence[str]], Floats]) -> tuple[Tensor, Tensor]:
    texts = sorted({text for pair in pairs for text in (pair.query, pair.question)})
    place = {text: i for i, text in enumerate(texts)}
    vectors = torch.from_numpy(np.ascontiguousarray(embed("memory.pairs", texts)))
    rng = random.Random(0)
    shuffled = rng.sample(list(pairs), len(pairs))
    return (
        vectors[[place[pair.query] for pair in shuffled]],
        vectors[[place[pair.question] for pair in shuffled]],
    )
