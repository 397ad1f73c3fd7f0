"""The tiny invented world, and what tests ask of a knowledge base of it."""

from __future__ import annotations

import json
from pathlib import Path

from byheart.fakes import FakeEncoder, FakeReader
from byheart.knowledge import KnowledgeBase

WORLD = {
    "lighthouse.md": (
        "# The lighthouse of Korva\n\nThe lighthouse of Korva was built in 1841 by Mira Tolven. "
        "Its lamp burns herring oil.\n\n## Visits\n\nVisitors climb 212 steps. The tower closes at dusk.\n"
    ),
    "ferry.md": "# The ferry\n\nThe ferry to Ostrel leaves at seven. A ticket costs four crowns.\n",
    "birds/puffin.txt": "Puffins nest on the cliffs of Korva from April. They eat sand eels.\n",
}
RECORDS = (
    {"id": 7, "title": "Harbour", "text": "The harbour master of Korva is called Jonna Brik."},
    {"id": "h-8", "title": "Tides", "text": "Spring tide reaches nine metres at the old pier."},
    {
        "id": "6f1d2a3e-2f5b-5c0e-9a58-b7a0c1e4d911",
        "title": "Bells",
        "text": "The fog bell rings every ninety seconds.",
    },
)


def write_records(path: Path, records: tuple[dict[str, object], ...] | list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def open_fake(folder: Path, wait_seconds: float = 10.0) -> KnowledgeBase:
    return KnowledgeBase(folder, wait_seconds=wait_seconds, encoder=FakeEncoder(), reader=FakeReader())


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def check_whole(kb: KnowledgeBase) -> None:
    """Assert what holds in every epoch: rows, vectors, passages and term counts belong together."""
    connection = kb._database.connection
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    passages = [row[0] for row in connection.execute("SELECT id FROM passages ORDER BY id")]
    index = kb._library.index
    assert index.ids() == passages
    counted: dict[int, int] = {}
    for entry in index.fetch(passages):
        for number in entry.sparse.terms.tolist():
            counted[number] = counted.get(number, 0) + 1
    assert dict(connection.execute("SELECT number, df FROM terms")) == counted
