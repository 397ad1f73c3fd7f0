"""Making and opening a knowledge base's folder.

Owns these two calls, which `byheart.init` and `byheart.open` are. Part of the composition root.
"""

from __future__ import annotations

from pathlib import Path

from byheart.config import Config
from byheart.interfaces import Encoder, Reader
from byheart.knowledge import KnowledgeBase
from byheart.retrieval.analyzer import ANALYZER_VERSION
from byheart.store import database
from byheart.store.settings import claim
from byheart.text.encoder import SentenceEncoder


def init(
    path: str | Path, config: Config | None = None, *, encoder: Encoder | None = None, reader: Reader | None = None
) -> KnowledgeBase:
    """Create an empty knowledge base.

    Args:
        path: Folder to create; it may exist if it is empty.
        config: Settings, the defaults if None.
        encoder: Encoder to use instead of the configured one; pass it to every later `open` too.
        reader: Reader to use instead of the configured one.

    Returns:
        The open knowledge base.

    Raises:
        AlreadyExistsError: The folder holds one already, or other files.
    """
    folder, config = Path(path), config or Config()
    chosen = encoder or SentenceEncoder(config.encoder)
    claim(folder, config)
    database.create(folder / database.FILE, chosen.name, chosen.fingerprint, ANALYZER_VERSION, chosen.width)
    return KnowledgeBase(folder, encoder=encoder, reader=reader)


def open_knowledge(path: str | Path, *, encoder: Encoder | None = None, reader: Reader | None = None) -> KnowledgeBase:
    """Open a knowledge base.

    Args:
        path: Its folder.
        encoder: Encoder to use instead of the configured one.
        reader: Reader to use instead of the configured one.

    Returns:
        The open knowledge base; it is a context manager.
    """
    return KnowledgeBase(path, encoder=encoder, reader=reader)
