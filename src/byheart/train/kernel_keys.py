"""Fitting the memory's keys: the principal components of the base encoder's vectors, and the fixed codebooks.

Owns both fits; they work on the encoder's pooled vectors, which do not change, and take seconds. Components keep the
cosine of any text; a projection trained to pull paraphrases together was no better on the questions it was trained for,
and worse on others (docs/log.md).
Source: Lample et al. 2019, product keys, section 3.1; Ge et al. 2013, optimized product quantization, section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from byheart.interfaces import Floats
from byheart.memory.codebooks import fit_codebooks

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


def fit_keys(pooled: Floats, key_width: int, seed: int) -> Keys:
    """Return projection and codebooks, fitted on the vectors of questions.

    Args:
        pooled: Vectors of training questions. Shape `batch width`.
        key_width: Numbers of a key.
        seed: Of the clusters.

    Returns:
        The keys' parameters; both halves of a key carry as much variance.
    """
    _, _, components = np.linalg.svd(pooled - pooled.mean(0), full_matrices=False)
    order = [*range(0, key_width, 2), *range(1, key_width, 2)]
    projection = np.ascontiguousarray(components[order], np.float32)
    keys = pooled @ projection.T
    books = fit_codebooks(keys / np.linalg.norm(keys, axis=1, keepdims=True), SUB_KEYS, seed)
    return Keys(torch.from_numpy(projection), torch.from_numpy(books.first), torch.from_numpy(books.second))
