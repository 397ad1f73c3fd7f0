"""The memory reader: questions beside candidate slots, and how likely each is to hold the answer.

Owns tokenising, batching, calibration and the softmax over slots and *not known*. Knows no database.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byheart.errors import KernelError
from byheart.interfaces import Floats
from byheart.memory.codes import Codes
from byheart.text.models import fingerprint, model_folder
from byheart.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from byheart.memory.kernel import Kernel

BASE = "all-MiniLM-L6-v2"
MAX_TOKENS = 192  # of a question, and of a fact: what is longer is cut for judging, never for the answer
BATCH = 64


@dataclass(frozen=True, slots=True)
class Shares:
    """How a question's probability is shared out.

    Attributes:
        of_fact: Probability per fact, the most probable first; ties by number.
        not_known: Probability that none of them answers.
        slot_of: The best slot of each fact.
    """

    of_fact: dict[int, float]
    not_known: float
    slot_of: dict[int, int]


class MemoryReader:
    """The kernel with arrays in and out."""

    def __init__(
        self,
        weights: Path | None = None,
        device: str = "cpu",
        precision: str = "auto",
        calibration: tuple[float, float, float] | None = None,
    ) -> None:
        """Find the files; the network is loaded when first needed.

        Args:
            weights: Weight file, the shipped one by default.
            device: torch device.
            precision: `auto`, `fp32` or `bf16`.
            calibration: Slope, offset and gap weight of the log-odds, the weight file's own if None.
        """
        self._calibration = calibration
        self.weights, self.device, self.precision = weights or shipped_kernel(), device, precision
        self.base = model_folder(BASE)
        self.tokenizer = load_tokenizer(self.base)

    @cached_property
    def _loaded(self) -> tuple[Kernel, dict[str, Any], dict[str, Tensor]]:
        import torch

        from byheart.memory.kernel import load_kernel
        from byheart.text.precision import is_half

        with torch.inference_mode(False):  # refining needs gradients through it, whoever asks first
            kernel, notes, extra = load_kernel(self.weights, self.base, self.device)
            if is_half(self.precision, self.device):
                kernel.halve()
            kernel.requires_grad_(False)
        if notes.get("base_fingerprint") != self.base_fingerprint:
            raise KernelError(
                f"{self.weights.name} was trained on another release of {BASE} ({notes.get('base_fingerprint')!r}); "
                "install the release it names, or run: byheart train kernel --data DIR"
            )
        return kernel, notes, extra

    @cached_property
    def base_fingerprint(self) -> str:
        """Hash of the base encoder, whose pooled vectors the keys are made of."""
        return base_fingerprint(self.base)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weight file: slots mean something only to the kernel that wrote them."""
        if not self.weights.is_file():
            raise KernelError(
                f"the memory's weights are missing at {self.weights}; run: byheart train kernel --data DIR"
            )
        return hashlib.sha256(self.weights.read_bytes()).hexdigest()[:16]

    @property
    def kernel(self) -> Kernel:
        """The network."""
        return self._loaded[0]

    @property
    def codebooks(self) -> tuple[Floats, Floats]:
        """The sub-keys of both halves of a key. Shapes `sub_keys key_width/2`."""
        extra = self._loaded[2]
        return extra["codebook.first"].float().numpy(), extra["codebook.second"].float().numpy()

    @property
    def value_width(self) -> int:
        """Numbers per token of a meaning."""
        return self.kernel.shape.value_width

    @property
    def gap_weight(self) -> float:
        """Log-odds that a fact loses per unit of cosine that it lies farther from the question than the nearest."""
        return self.calibration[2]

    @property
    def calibration(self) -> tuple[float, float, float]:
        """Slope and offset of the log-odds, and the gap weight."""
        slope, offset, weight = self._calibration or self._loaded[1].get("calibration", (1.0, 0.0, 0.0))
        return float(slope), float(offset), float(weight)

    def keys(self, pooled: Floats) -> Floats:
        """Return unit keys of the base encoder's pooled vectors. Shapes `batch width` to `batch key_width`."""
        import torch

        with torch.inference_mode():
            keys: Floats = self.kernel.keys(torch.from_numpy(pooled).to(self.device)).cpu().numpy()
        return keys

    def meanings(self, questions: Sequence[str], answers: Sequence[str]) -> list[Codes]:
        """Return what memory keeps of facts in order to judge questions against them.

        Args:
            questions: Questions of the facts.
            answers: Their answers.

        Returns:
            One value per fact.
        """
        import torch

        ids = [self.ids(question, answer) for question, answer in zip(questions, answers, strict=True)]
        found: dict[int, Codes] = {}
        with torch.inference_mode():
            for rows in _batches([len(row) for row in ids]):
                values = self.kernel.compress(self.kernel.lower([ids[row] for row in rows], 1)).float().cpu().numpy()
                for row, value in zip(rows, values, strict=True):
                    found[row] = Codes.of(value[: len(ids[row])])
        return [found[i] for i in range(len(ids))]

    def odds(self, questions: Sequence[str], candidates: Sequence[Sequence[Codes]]) -> list[Floats]:
        """Return calibrated log-odds that each candidate answers its question.

        Args:
            questions: What is asked.
            candidates: Meanings of slots, per question.

        Returns:
            One array per question. Shape `candidates`.
        """
        import torch

        pairs = [(i, meaning) for i, of_one in enumerate(candidates) for meaning in of_one]
        ids = [self.ids(question) for question in questions]
        odds = np.zeros(len(pairs), np.float32)
        with torch.inference_mode():
            for rows in _batches([len(ids[pairs[row][0]]) + len(pairs[row][1].scales) for row in range(len(pairs))]):
                odds[rows] = self._match([(ids[pairs[row][0]], pairs[row][1].vectors) for row in rows])
        slope, offset, _ = self.calibration
        bounds = np.cumsum([0, *(len(of_one) for of_one in candidates)])
        return [slope * odds[a:b] + offset for a, b in pairwise(bounds)]

    def _match(self, pairs: Sequence[tuple[list[int], Floats]]) -> Floats:
        import torch

        from byheart.memory.kernel import States

        # Several candidates of one question share its lower half.
        places: dict[tuple[int, ...], int] = {}
        of_pair = [places.setdefault(tuple(ids), len(places)) for ids, _ in pairs]
        lower = self.kernel.lower([list(ids) for ids in places], 0)
        chosen = torch.tensor(of_pair)
        values, mask = padded([vectors for _, vectors in pairs])
        states = States(lower.states[chosen], lower.mask[chosen])
        odds: Floats = self.kernel.match(states, values.to(self.device), mask.to(self.device)).cpu().numpy()
        return odds

    def ids(self, text: str, answer: str = "") -> list[int]:
        """Return the token ids of a question, or of a fact with its answer."""
        encoding = self.tokenizer.encode(text, answer) if answer else self.tokenizer.encode(text)
        ids: list[int] = encoding.ids
        return ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]]


def shares(odds: Sequence[float], facts: Sequence[int], slots: Sequence[int]) -> Shares:
    """Return a softmax over facts and *not known*, whose log-odds are 0; a fact counts with its best slot.

    Args:
        odds: Log-odds per slot.
        facts: The slots' facts.
        slots: The slots' numbers.

    Returns:
        The shares; all of it is *not known* where there is no slot.
    """
    best: dict[int, tuple[float, int]] = {}
    for value, fact, slot in zip(odds, facts, slots, strict=True):
        if fact not in best or (value, -slot) > (best[fact][0], -best[fact][1]):
            best[fact] = (float(value), slot)
    top = max([0.0, *(value for value, _ in best.values())])
    weights = {fact: math.exp(value - top) for fact, (value, _) in best.items()}
    whole = math.exp(-top) + sum(weights.values())
    ordered = sorted(weights, key=lambda fact: (-weights[fact], fact))
    return Shares(
        {fact: weights[fact] / whole for fact in ordered},
        math.exp(-top) / whole,
        {fact: best[fact][1] for fact in ordered},
    )


def base_fingerprint(base: Path) -> str:
    """Return the hash of a base encoder that pools by the mean and puts nothing before texts."""
    return fingerprint(base, "mean", "", "")


def shipped_kernel() -> Path:
    """Return the weight file that the package ships, where `byheart train kernel` writes."""
    return Path(str(resources.files("byheart.memory") / "weights" / "kernel.safetensors"))


def padded(vectors: Sequence[Floats]) -> tuple[Tensor, Tensor]:
    """Return vectors padded with zeros, and the mask of real tokens. Shapes `batch tokens width`, `batch tokens`."""
    import torch

    longest = max(len(one) for one in vectors)
    values = np.zeros((len(vectors), longest, vectors[0].shape[1]), np.float32)
    mask = np.zeros((len(vectors), longest), np.int64)
    for row, one in enumerate(vectors):
        values[row, : len(one)] = one
        mask[row, : len(one)] = 1
    return torch.from_numpy(values), torch.from_numpy(mask)


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return row numbers in batches of like length."""
    order = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    return [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
