"""Opening a database file, on a medium that can be written or on one that cannot.

Owns the first statements of a connection. Knows no table.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from byheart.store.failures import is_not_writable

Stamp = tuple[int, int, bool]


def connect(path: Path, wait_seconds: float) -> tuple[sqlite3.Connection, Stamp | None]:
    """Return a connection to a database, for reading only where nothing can be written beside it.

    Args:
        path: The database file.
        wait_seconds: How long a statement waits for another process.

    Returns:
        The connection and None; or one that reads the file as it lies there, without locks, and the file's stamp.
    """
    connection = _connected(path, wait_seconds)
    try:
        connection.execute("PRAGMA application_id")
    except sqlite3.DatabaseError as error:
        seen = stamp(path)
        # A log beside the file holds commits that the file lacks; and who may write must not read past the locks.
        if is_not_writable(error) and not seen[2] and not _can_write(path.parent):
            connection.close()
            return _connected(f"{path.resolve().as_uri()}?mode=ro&immutable=1", wait_seconds, is_uri=True), seen
    return connection, None  # what is wrong is met again, and named, by the caller's checks


def stamp(path: Path) -> Stamp:
    """Return a file's time and size, and whether a log lies beside it."""
    found = path.stat()
    logs = (path.with_name(path.name + end) for end in ("-wal", "-journal"))
    return found.st_mtime_ns, found.st_size, any(log.exists() for log in logs)


def _connected(path: Path | str, wait_seconds: float, *, is_uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False, uri=is_uri)
    # First of all: every statement below may already have to wait for another process.
    connection.execute(f"PRAGMA busy_timeout = {int(wait_seconds * 1000)}")
    return connection


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
