"""Learns and forgets batches of facts for ever, until it is killed: python killed_learner.py KB TAG."""

from __future__ import annotations

import sys
from pathlib import Path

from byheart.fakes import FakeEncoder, FakeReader
from byheart.knowledge import KnowledgeBase
from byheart.types import NewFact

BATCH = 6
TOWNS = ("Korva", "Ostrel", "Lindwick", "Harrowmere", "Port Sela", "Tarn")


def batch(tag: str, number: int) -> list[NewFact]:
    return [
        NewFact(f"Who was mayor of {town} in {1500 + number}?", f"{tag} {town} {number}", (), f"{tag}{number}")
        for town in TOWNS
    ]


def main() -> None:
    folder, tag = Path(sys.argv[1]), sys.argv[2]
    with KnowledgeBase(folder, encoder=FakeEncoder(), reader=FakeReader(), wait_seconds=30) as kb:
        kb.recall("Are the networks loaded?")
        print("ready", flush=True)
        for number in range(10**9):
            kb.learn(batch(tag, number))
            if number >= 2:
                kb.forget(*[fact.id for fact in kb.facts() if fact.source.note == f"{tag}{number - 2}"])


if __name__ == "__main__":
    main()
