"""The writer's correction of a slot: its question is recognised again, whatever mode the caller computes in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch

from byheart.memory.answers import AnswerCodec
from byheart.memory.codes import Codes
from byheart.memory.reader import MemoryReader
from byheart.memory.writer import Writer

QUESTIONS = ("Who built the lighthouse of Korva?", "What does a ticket for the ferry to Ostrel cost on Sundays?")
ANSWERS = ("Ilse Marenka", "7.50 crowns")


@pytest.fixture(scope="module")
def writer() -> Writer:
    return Writer(MemoryReader(precision="fp32"), AnswerCodec())


def spoilt(writer: Writer) -> list[Codes]:
    chance = np.random.default_rng(7)
    meanings = writer.reader.meanings(QUESTIONS, ANSWERS)
    return [Codes.of((m.vectors * chance.normal(0, 1.5, m.vectors.shape)).astype(np.float32)) for m in meanings]


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_a_spoilt_meaning_is_recognised_again_whatever_mode_the_caller_is_in(
    writer: Writer, mode: Callable[[], AbstractContextManager[object]]
) -> None:
    broken = spoilt(writer)
    before = writer.reader.odds(QUESTIONS, [[meaning] for meaning in broken])
    weights = {name: value.clone() for name, value in writer.reader.kernel.named_parameters()}
    with mode():
        refined = writer.refine(QUESTIONS, broken)
    after = writer.reader.odds(QUESTIONS, [[meaning] for meaning in refined])
    assert all(now[0] > then[0] + 1 for then, now in zip(before, after, strict=True))
    assert [len(one.scales) for one in refined] == [len(one.scales) for one in broken]
    assert all(torch.equal(value, weights[name]) for name, value in writer.reader.kernel.named_parameters())
