"""Sizes and versions of a knowledge base, as `byheart status` shows them.

Owns what is counted. Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from byheart.config import Config
from byheart.reports import Status
from byheart.store import database
from byheart.store.database import Database
from byheart.store.documents import Documents


def described(folder: Path, held: Database, state: Mapping[str, object], config: Config) -> Status:
    """Return sizes and versions, all of one epoch.

    Args:
        folder: The knowledge base's folder.
        held: Its database.
        state: What it was built with.
        config: Its settings.

    Returns:
        The figures.
    """
    with held.read() as connection:
        epoch, (documents, passages) = held.epoch, Documents(connection).counts()
        facts, terms = (connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("facts", "terms"))
    return Status(
        path=str(folder),
        epoch=epoch,
        format_version=database.FORMAT_VERSION,
        documents=documents,
        passages=passages,
        facts=facts,
        terms=terms,
        bytes_on_disk=database.folder_bytes(folder),
        encoder=str(state["encoder"]),
        encoder_hash=str(state["encoder_fingerprint"]),
        index=config.retrieval.index,
        reader=config.reader.name,
    )
