"""The writer: facts into slots, without a gradient step; and one slot corrected where reading it back fails.

Owns how a slot is made and refined. Knows no database: what is written is decided by `slot_memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from byheart.interfaces import Floats
from byheart.memory.codes import Codes
from byheart.memory.reader import MemoryReader, padded

if TYPE_CHECKING:
    from byheart.memory.answers import AnswerCodec

REFINE_STEPS = 30
REFINE_RATE = 0.02
WANTED_ODDS = 3.0  # log-odds that a refined slot shall have for its own questions


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

    def refine(self, questions: Sequence[str], meaning: Codes) -> Codes:
        """Return a meaning corrected by gradient so that its own questions are judged right; the network stays put.

        Args:
            questions: The fact's own questions.
            meaning: The slot's meaning.

        Returns:
            Another meaning; whether it does better is for the reader to say.
        """
        import torch

        kernel = self.reader.kernel
        ids = [self.reader.ids(text) for text in questions]
        values, mask = padded([meaning.vectors])
        value = values.clone().requires_grad_(True)
        with torch.no_grad():
            lower = kernel.lower(ids, 0)
        optimizer = torch.optim.Adam([value], lr=REFINE_RATE * float(np.abs(meaning.vectors).mean() + 1e-6))
        for _ in range(REFINE_STEPS):
            odds = kernel.match(lower, value.expand(len(ids), -1, -1), mask.expand(len(ids), -1))
            loss = torch.nn.functional.softplus(WANTED_ODDS - odds).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return Codes.of(value.detach()[0].numpy())
