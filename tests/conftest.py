"""A tiny invented world, and a knowledge base of it that needs no model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from byheart.config import EncoderConfig
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.knowledge import KnowledgeBase
from byheart.text.encoder import SentenceEncoder
from world import RECORDS, WORLD, write_records

settings.register_profile("busy machine", deadline=None)  # seconds are measured elsewhere
settings.load_profile("busy machine")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """The folder that holds the documents and, beside them, the knowledge base."""
    for name, text in WORLD.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    write_records(tmp_path / "docs" / "notes.jsonl", RECORDS)
    return tmp_path


@pytest.fixture
def kb(world: Path) -> Iterator[KnowledgeBase]:
    """An empty knowledge base beside the documents."""
    with init(world / "kb", encoder=FakeEncoder(), reader=FakeReader()) as held:
        yield held


@pytest.fixture
def filled(kb: KnowledgeBase, world: Path) -> KnowledgeBase:
    """The knowledge base with all documents of the world."""
    kb.add(world / "docs")
    return kb


@pytest.fixture(scope="session")
def minilm() -> SentenceEncoder:
    """The real encoder, loaded once."""
    return SentenceEncoder(EncoderConfig())
