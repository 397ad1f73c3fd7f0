"""What SQLite's errors mean for whoever uses a knowledge base.

Owns the line between a file that is damaged, one that is busy or cannot be written, and a mistake of byheart's own.
Opens nothing and runs no statement.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from importlib import resources
from pathlib import Path

from byheart.errors import BusyError, FormatError, KnowledgeError

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_FORMAT})
_NOT_WRITABLE = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
    }
)
_NO_TABLE = re.compile(r"no such table: (?:main\.)?(\w+)")


def translated(error: sqlite3.DatabaseError, path: Path, wait_seconds: float) -> Exception:
    """Return the error a user should see for SQLite's.

    Args:
        error: What SQLite said.
        path: The database file.
        wait_seconds: How long was waited for another writer.

    Returns:
        BusyError, FormatError or KnowledgeError; the error itself where the driver was called wrongly.
    """
    code = _code(error)
    if code in _BUSY:
        return busy(path, wait_seconds)
    if is_not_writable(error):
        return BusyError(f"{path} cannot be written ({error}); free space or rights, then run the command again")
    if code in _DAMAGE or _is_table_gone(error):
        return damaged(path, error)
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return KnowledgeError(f"{path.parent} was closed; open it again")
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error  # our own mistake, and not of the file's making: a traceback is what helps
    return KnowledgeError(
        f"SQLite refused a step on {path} ({type(error).__name__}: {error}); nothing was changed, the file need not be "
        "damaged: run the command again, and report this message if it comes back"
    )


def busy(path: Path, wait_seconds: float) -> BusyError:
    """Return the error for a database that another process writes to."""
    return BusyError(f"another process writes to {path.parent} (waited {wait_seconds:g} s); try again when it is done")


def damaged(path: Path, error: Exception) -> FormatError:
    """Return the error for a file that is damaged."""
    return FormatError(f"{path} is damaged ({error}); put a snapshot's folder in the place of {path.parent}")


def is_not_writable(error: sqlite3.DatabaseError) -> bool:
    """Return whether the medium or the rights are in the way."""
    return _code(error) in _NOT_WRITABLE


def _code(error: sqlite3.DatabaseError) -> int:
    """Return SQLite's primary result code, 0 for an error of the driver's own."""
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _is_table_gone(error: sqlite3.DatabaseError) -> bool:
    """Return whether a table is missing that every knowledge base has, and not one that only a mistake asks for."""
    found = _NO_TABLE.search(str(error))
    return found is not None and found[1] in _tables()


@functools.cache
def _tables() -> frozenset[str]:
    """Return the names of all tables that the migrations create."""
    folder = resources.files("byheart.store").joinpath("migrations")
    scripts = (path.read_text("utf-8") for path in folder.iterdir() if path.name.endswith(".sql"))
    return frozenset(name for script in scripts for name in re.findall(r"CREATE TABLE (\w+)", script))
