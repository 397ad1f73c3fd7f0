"""The writer: facts into slots, without a gradient step; and one slot corrected where reading it back fails.

Owns how a slot is made and refined. Knows no database: what is written is decided by `slot_memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from byheart.interfaces import Floats
from byheart.memory.codes import Codes
from byheart.memory.reader import MemoryReader, padded

if TYPE_CHECKING:
    from torch import Tensor

    from byheart.memory.answers import AnswerCodec

REFINE_STEPS = 30
REFINE_RATE = 0.1  # in units of a meaning's mean size
REFINE_BATCH = 32
WANTED_ODDS = 2.0  # log-odds that a refined slot shall have for its own questions


@dataclass(frozen=True, slots=True)
class Written:
    """A slot before it has a fact's number.

    Attributes:
        key: Unit vector. Shape `key_width`.
        meaning: Value tokens that are judged.
        spelling: Value tokens that are decoded.
    """

    key: Floats
    meaning: Codes
    spelling: Codes


class Writer:
    """Makes slots."""

    def __init__(self, reader: MemoryReader, codec: AnswerCodec) -> None:
        """Keep the networks.

        Args:
            reader: Holds the kernel.
            codec: Spells answers.
        """
        self.reader, self.codec = reader, codec

    def refusals(self, answers: Sequence[str], max_tokens: int) -> list[str]:
        """Return why answers cannot be memorised; empty for those that can.

        Args:
            answers: Answers of facts.
            max_tokens: Tokens that an answer may have.

        Returns:
            One reason per answer.
        """
        return [
            f"its answer has {n} tokens, memory holds {max_tokens}; shorten it, or leave it to retrieval"
            if n > max_tokens
            else ""
            for n in self.codec.count_tokens(answers)
        ]

    def write(self, questions: Sequence[str], answers: Sequence[str], pooled: Floats) -> list[Written]:
        """Return one slot per question, in one pass.

        Args:
            questions: Questions of facts.
            answers: The answer of each.
            pooled: The questions' vectors. Shape `batch width`.

        Returns:
            Slots in order.

        Raises:
            FactError: An answer is longer than a slot holds.
        """
        if not questions:
            return []
        distinct = list(dict.fromkeys(answers))
        spelled = dict(zip(distinct, self.codec.write(distinct), strict=True))
        keys, meanings = self.reader.keys(pooled), self.reader.meanings(questions, answers)
        return [
            Written(key, meaning, spelled[answer]) for key, meaning, answer in zip(keys, meanings, answers, strict=True)
        ]

    def refine(self, questions: Sequence[str], meanings: Sequence[Codes]) -> list[Codes]:
        """Return meanings corrected by gradient so that each is recognised by its question; the network stays put.

        Args:
            questions: The slots' own questions.
            meanings: The slots' meanings, which no two slots share.

        Returns:
            Other meanings; whether they do better is for the reader to say.
        """
        corrected: list[Codes] = []
        for first in range(0, len(questions), REFINE_BATCH):
            corrected += self._refined(questions[first : first + REFINE_BATCH], meanings[first : first + REFINE_BATCH])
        return corrected

    def _refined(self, questions: Sequence[str], meanings: Sequence[Codes]) -> list[Codes]:
        import torch

        # Gradients are wanted here, whatever mode the caller has set.
        with torch.inference_mode(False), torch.enable_grad():
            found = self._recognised(
                questions, *(t.to(self.reader.device) for t in padded([m.vectors for m in meanings]))
            )
        return [Codes.of(row[: len(meaning.scales)]) for row, meaning in zip(found, meanings, strict=True)]

    def _recognised(self, questions: Sequence[str], values: Tensor, mask: Tensor) -> Floats:
        """Return values that their questions recognise, or the nearest to it that a few steps lead to."""
        import torch

        kernel = self.reader.kernel
        sizes = values.abs().sum(dim=(1, 2), keepdim=True) / (mask.sum(dim=1) * values.shape[2])[:, None, None] + 1e-6
        change = torch.zeros_like(values).requires_grad_(True)
        with torch.no_grad():
            lower = kernel.lower([self.reader.ids(text) for text in questions], 0)
        optimizer = torch.optim.Adam([change], lr=REFINE_RATE)
        for _ in range(REFINE_STEPS):
            short = torch.relu(WANTED_ODDS - kernel.match(lower, values + change * sizes, mask))
            if not bool((short > 0).any()):
                break
            optimizer.zero_grad()
            short.sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        found: Floats = (values + change.detach() * sizes).cpu().numpy()
        return found
