"""Which questions are trained on and which are reported on: fixed by hash, the same for every part.

Owns the rule and nothing else.
"""

from __future__ import annotations

import enum
import hashlib
from functools import cache
from pathlib import Path

from byheart.corpus.datasets import records


class FeverSplit(enum.StrEnum):
    """What a FEVER dev claim is for."""

    MEMORY = "memory"
    CALIBRATION = "calibration"
    EVALUATION = "evaluation"


def share(text: str) -> float:
    """Return a number from 0 up to 1 that depends on the text alone: the first 32 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32


@cache
def nq_reporting_ids(data: Path) -> frozenset[str]:
    """Return the ids of the questions in `question_pairs/test_nq`: never trained on."""
    return frozenset(row["id"] for row in records(data / "question_pairs/test_nq.jsonl"))


def is_nq_training(question_id: str, data: Path) -> bool:
    """Return whether an NQ question may be trained on: half of them by hash, and none of `test_nq`.

    Args:
        question_id: `nq-<line>`.
        data: Folder of the data sets.

    Returns:
        True for training, False for reporting.
    """
    return share(question_id) < 0.5 and question_id not in nq_reporting_ids(data)


def is_support_training(fact_id: str) -> bool:
    """Return whether the queries around a fact of the help desk may be trained on: half of them by hash of its id."""
    return share(f"support/{fact_id}") < 0.5


def is_pair_held_out(question_id: str) -> bool:
    """Return whether a question with hand-written pairs is never trained on: one in ten, by its id."""
    return hashlib.sha256(question_id.encode()).digest()[0] % 10 == 0


def fever_split(claim_id: str) -> FeverSplit:
    """Return what a FEVER dev claim is for: memory 50 %, calibration 10 %, evaluation 40 %."""
    place = share(claim_id)
    if place < 0.5:
        return FeverSplit.MEMORY
    return FeverSplit.CALIBRATION if place < 0.6 else FeverSplit.EVALUATION
