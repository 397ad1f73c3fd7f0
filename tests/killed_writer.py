"""Adds and removes whole batches of one size for ever, until it is killed: python killed_writer.py KB TAG [ROUNDS].

Every batch is one origin of `BATCH` documents with one mark in all of them. Whoever reads must see whole batches only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from byheart.fakes import FakeEncoder, FakeReader
from byheart.knowledge import KnowledgeBase
from byheart.types import Document

BATCH = 12


def batch(tag: str, number: int, version: int) -> list[Document]:
    mark = f"{tag}{number}v{version}"
    return [
        Document(f"{tag}{number}-{i}", f"Title {mark}", f"Text {mark} of document {i}. Shared words, term{i}.")
        for i in range(BATCH)
    ]


def step(kb: KnowledgeBase, tag: str, round_number: int) -> None:
    """Add a batch, change an older one, remove a still older one: each is one epoch."""
    kb.add_documents(batch(tag, round_number, 0), origin=f"{tag}{round_number}")
    if round_number >= 1:
        kb.add_documents(batch(tag, round_number - 1, 1), origin=f"{tag}{round_number - 1}")
    if round_number >= 3:
        kb.remove(f"{tag}{round_number - 3}")


def main() -> None:
    folder, tag = Path(sys.argv[1]), sys.argv[2]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 10**9
    with KnowledgeBase(folder, encoder=FakeEncoder(), reader=FakeReader(), wait_seconds=30) as kb:
        print("ready", flush=True)
        for round_number in range(rounds):
            step(kb, tag, round_number)


if __name__ == "__main__":
    main()
