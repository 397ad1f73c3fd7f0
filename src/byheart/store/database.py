"""One SQLite database, in which an epoch is a committed transaction.

Owns the connection's settings, migrations, write and read transactions, backup and the checks on opening. Knows the
table `state` and one row of `parameters`; what the other tables hold is their users' business.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

from byheart.errors import BusyError, FormatError, KnowledgeError, NotAKnowledgeBaseError

FILE = "knowledge.sqlite"
APPLICATION_ID = 0x62796872  # "byhr"
MIGRATIONS = tuple(
    sorted(
        path.name
        for path in resources.files("byheart.store").joinpath("migrations").iterdir()
        if path.name[0].isdigit()
    )
)
FORMAT_VERSION = len(MIGRATIONS)
_NOT_WRITABLE = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
    }
)


class Database:
    """A connection to a knowledge base's database; threads take turns."""

    def __init__(self, path: Path, *, wait_seconds: float = 10.0) -> None:
        """Open an existing database and bring it up to date.

        Args:
            path: The database file.
            wait_seconds: How long a writer waits for another one.

        Raises:
            NotAKnowledgeBaseError: There is no such file.
            FormatError: The file is no knowledge base, is damaged, or was written by a newer version.
            BusyError: It must be migrated while another process writes.
        """
        if not path.is_file():
            raise NotAKnowledgeBaseError(f"{path.parent} holds no knowledge base; run: byheart init {path.parent}")
        self.path = path
        self.wait_seconds = wait_seconds
        self._lock = threading.RLock()
        self.connection = _connect(path, wait_seconds)
        try:
            _check(self.connection, path)
            self._migrate()
        except sqlite3.DatabaseError as error:
            self.connection.close()
            raise _translated(error, path, wait_seconds) from error
        except (FormatError, UnicodeDecodeError) as error:  # SQLite quotes damaged bytes in its message
            self.connection.close()
            if isinstance(error, FormatError):
                raise
            raise _damaged(path, error) from error

    @property
    def epoch(self) -> int:
        """Number of the last committed transaction, as the open transaction sees it."""
        with self._lock:  # a statement that another thread has open keeps `scrub` from rewriting the file
            try:
                row = self.connection.execute("SELECT epoch FROM state").fetchone()
            except sqlite3.DatabaseError as error:
                raise _translated(error, self.path, self.wait_seconds) from error
        if row is None:
            raise FormatError(f"{self.path} was never finished; delete its folder and run byheart init again")
        return int(row[0])

    def state(self, analyzer_version: int) -> dict[str, object]:
        """Return what the knowledge base was built with.

        Args:
            analyzer_version: Version of the analyzer that will ask.

        Returns:
            Values by name: encoder, encoder_fingerprint, analyzer_version, width.

        Raises:
            FormatError: Nothing was written yet, it was written with another analyzer, or it is damaged.
        """
        names = ("encoder", "encoder_fingerprint", "analyzer_version", "width")
        with self.read() as connection:
            row = connection.execute(f"SELECT {', '.join(names)} FROM state").fetchone()
        if row is None:
            raise FormatError(f"{self.path} was never finished; delete its folder and run byheart init again")
        held = dict(zip(names, row, strict=True))
        if held["analyzer_version"] != analyzer_version:
            raise FormatError(
                f"{self.path} was indexed with analyzer version {held['analyzer_version']}, this byheart has "
                f"{analyzer_version}; build it again from its documents"
            )
        return held

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Open the one write transaction; it becomes the next epoch, or leaves no trace if the block raises.

        Yields:
            The connection.

        Raises:
            BusyError: Another process writes for longer than we wait.
            FormatError: The file is damaged.
        """
        with self._lock:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
            except sqlite3.DatabaseError as error:
                raise _translated(error, self.path, self.wait_seconds) from error
            try:
                yield self.connection
                self.connection.execute("UPDATE state SET epoch = epoch + 1")
                self.connection.execute("COMMIT")
            except BaseException as error:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError):
                    raise _translated(error, self.path, self.wait_seconds) from error
                raise
            self._checkpoint()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Hold one epoch still: everything read inside belongs to it, whatever other processes write.

        Yields:
            The connection.

        Raises:
            FormatError: The file is damaged.
        """
        with self._lock:
            try:
                outermost = not self.connection.in_transaction
            except sqlite3.ProgrammingError as error:
                raise _translated(error, self.path, self.wait_seconds) from error
            try:
                if outermost:
                    self.connection.execute("BEGIN")
                yield self.connection
            except sqlite3.DatabaseError as error:
                raise _translated(error, self.path, self.wait_seconds) from error
            finally:
                if outermost and self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def owe_scrub(self) -> None:
        """Note inside the write transaction that text was deleted, so that `scrub` is due even after a kill."""
        self.connection.execute("INSERT OR REPLACE INTO parameters VALUES ('unscrubbed', 'true')")

    def scrub(self) -> bool:
        """Rewrite the file if text was deleted since the last time, so that none of it remains; changes no epoch.

        SQLite's `secure_delete` zeroes deleted rows, but not the copies that splitting and joining of pages leaves.

        Returns:
            Whether the file is clean; False when another process keeps it from being rewritten: call it again then.

        Raises:
            FormatError: The file is damaged.
        """
        with self._lock:
            try:
                if self.connection.execute("SELECT 1 FROM parameters WHERE name = 'unscrubbed'").fetchone() is None:
                    return True
                self.connection.execute("VACUUM")
                if self._checkpoint():
                    self.connection.execute("DELETE FROM parameters WHERE name = 'unscrubbed'")
                    return self._checkpoint()
                return False
            except sqlite3.DatabaseError as error:
                translated = _translated(error, self.path, self.wait_seconds)
                if isinstance(translated, BusyError):
                    return False
                raise translated from error

    def copy_to(self, path: Path) -> None:
        """Write a whole copy of the current epoch to a new file, while others go on reading and writing.

        Args:
            path: File to create; a kill in between leaves no file of that name.

        Raises:
            BusyError: There is no room for it.
            FormatError: This database is damaged.
        """
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        target = sqlite3.connect(partial)
        try:
            with self._lock:  # what another thread has not committed yet is no part of the epoch
                self.connection.backup(target)
        except sqlite3.DatabaseError as error:
            partial.unlink(missing_ok=True)
            raise _translated(error, path if _is_not_writable(error) else self.path, self.wait_seconds) from error
        finally:
            target.close()
        partial.replace(path)

    def replace_by(self, path: Path) -> None:
        """Take over another database's content as one new epoch.

        Args:
            path: A file that `copy_to` wrote; it stays as it is.

        Raises:
            BusyError: Another process writes for longer than we wait.
            FormatError: The other file is no knowledge base, or is damaged.
        """
        with self._lock:
            incoming = self.path.with_name("incoming.partial")
            incoming.unlink(missing_ok=True)
            Database(path, wait_seconds=self.wait_seconds).copied_and_closed(incoming)
            source = sqlite3.connect(incoming, isolation_level=None)
            try:
                source.execute("PRAGMA journal_mode = MEMORY")  # a kill leaves no log that the next copy would take in
                _check_whole(source, self.connection, path)
                # Never lower than either: caches of both lines of history must see a new number.
                source.execute("UPDATE state SET epoch = max(epoch, ?) + 1", (self.epoch,))
                source.backup(self.connection, progress=self._within(time.monotonic() + self.wait_seconds), sleep=0.05)
            except sqlite3.DatabaseError as error:
                raise _translated(error, self.path, self.wait_seconds) from error
            finally:
                source.close()
                incoming.unlink(missing_ok=True)
            self.connection.execute("PRAGMA journal_mode = WAL")
            self._checkpoint()

    def _within(self, deadline: float) -> Callable[[int, int, int], None]:
        """Return a watch over a backup, which by itself would wait for another writer without end."""

        def watch(status: int, _remaining: int, _total: int) -> None:
            if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} and time.monotonic() > deadline:
                raise _busy(self.path, self.wait_seconds)

        return watch

    def copied_and_closed(self, path: Path) -> None:
        """Copy to a new file and close this database."""
        try:
            self.copy_to(path)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._lock:
            self.connection.close()

    def _migrate(self) -> None:
        while _version(self.connection) < FORMAT_VERSION:
            self.connection.execute("BEGIN IMMEDIATE")
            version = _version(self.connection)  # another process may have been faster
            if version < FORMAT_VERSION:
                apply_migration(self.connection, version)
            self.connection.execute("COMMIT")

    def _checkpoint(self) -> bool:
        """Move the log into the file and empty it; False if a reader puts it off."""
        return bool(self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)


def create(path: Path, encoder: str, encoder_fingerprint: str, analyzer_version: int, width: int) -> None:
    """Create an empty database; a kill in between leaves no file of that name.

    Args:
        path: File to create.
        encoder: Name of the encoder.
        encoder_fingerprint: Hash of the encoder's weights and tokenizer.
        analyzer_version: Version of the analyzer.
        width: Length of a vector.
    """
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    connection = sqlite3.connect(partial, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("BEGIN")
        for version in range(FORMAT_VERSION):
            apply_migration(connection, version)
        row = (encoder, encoder_fingerprint, analyzer_version, width)
        connection.execute("INSERT INTO state VALUES (1, 0, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")
        # Once and for all: the switch wants the file for itself, and does not wait for others as writers do.
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    partial.replace(path)


def apply_migration(connection: sqlite3.Connection, version: int) -> None:
    """Run migration number `version` + 1 inside the open transaction."""
    script = resources.files("byheart.store").joinpath("migrations", MIGRATIONS[version]).read_text("utf-8")
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute(f"PRAGMA user_version = {version + 1}")


def _connect(path: Path, wait_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False)
    # First of all: every statement below may already have to wait for another process.
    connection.execute(f"PRAGMA busy_timeout = {int(wait_seconds * 1000)}")
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id != APPLICATION_ID:
        raise FormatError(
            f"{path} is no knowledge base of byheart (application id {application_id:#x}); pass another folder"
        )
    if _version(connection) > FORMAT_VERSION:
        raise FormatError(
            f"{path} has format version {_version(connection)}, this byheart reads up to {FORMAT_VERSION}; "
            "upgrade byheart"
        )
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON").fetchone()
    connection.execute("PRAGMA synchronous = FULL")


def _check_whole(source: sqlite3.Connection, ours: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that would replace ours with less than a knowledge base."""
    found = source.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found == "ok" and source.execute("PRAGMA foreign_key_check").fetchone():
        found = "passages without their document"
    schema = "SELECT name, sql FROM sqlite_schema ORDER BY name"
    if found == "ok" and source.execute(schema).fetchall() != ours.execute(schema).fetchall():
        found = "its tables are not those of a knowledge base"
    if found != "ok":
        raise FormatError(f"{path} is damaged ({' '.join(found.split())}); take another snapshot, nothing was restored")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _busy(path: Path, wait_seconds: float) -> BusyError:
    return BusyError(f"another process writes to {path.parent} (waited {wait_seconds:g} s); try again when it is done")


def _translated(error: sqlite3.DatabaseError, path: Path, wait_seconds: float) -> Exception:
    """Return the error a user should see for SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return _busy(path, wait_seconds)
    if _is_not_writable(error):
        return BusyError(f"{path} cannot be written ({error}); free space or rights, then run the command again")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return KnowledgeError(f"{path.parent} was closed; open it again")
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error  # our own mistake
    # Whatever else SQLite says of statements that are tested, the file gave cause for it: a table that is gone, too.
    return _damaged(path, error)


def _damaged(path: Path, error: Exception) -> FormatError:
    return FormatError(f"{path} is damaged ({error}); put a snapshot's folder in the place of {path.parent}")


def _is_not_writable(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_WRITABLE


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder; one that another process deletes meanwhile counts nothing."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total
