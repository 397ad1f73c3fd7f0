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

from byheart.errors import BusyError, FormatError, NotAKnowledgeBaseError
from byheart.store.connection import connect, stamp
from byheart.store.failures import busy, damaged, is_not_writable, translated

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


class Database:
    """A connection to a knowledge base's database; threads take turns.

    On a medium that cannot be written, such as a read-only mount, it reads the file as it lies there.
    """

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
        self.connection, self._resting = connect(path, wait_seconds)
        try:
            _check(self.connection, path)
            if self._resting is None:
                self.connection.execute("PRAGMA journal_mode = WAL").fetchone()
            self._migrate()
        except sqlite3.DatabaseError as error:
            self.connection.close()
            raise translated(error, path, wait_seconds) from error
        except (FormatError, UnicodeDecodeError) as error:  # SQLite quotes damaged bytes in its message
            self.connection.close()
            if isinstance(error, FormatError):
                raise
            raise damaged(path, error) from error

    @property
    def epoch(self) -> int:
        """Number of the last committed transaction, as the open transaction sees it."""
        with self._lock:  # a statement that another thread has open keeps `scrub` from rewriting the file
            try:
                row = self.connection.execute("SELECT epoch FROM state").fetchone()
            except sqlite3.DatabaseError as error:
                raise translated(error, self.path, self.wait_seconds) from error
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
                raise translated(error, self.path, self.wait_seconds) from error
            try:
                yield self.connection
                self.connection.execute("UPDATE state SET epoch = epoch + 1")
                self.connection.execute("COMMIT")
            except BaseException as error:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError):
                    raise translated(error, self.path, self.wait_seconds) from error
                raise
            self._checkpoint()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Hold one epoch still: everything read inside belongs to it, whatever other processes write.

        Yields:
            The connection.

        Raises:
            FormatError: The file is damaged.
            BusyError: The file was opened for reading only, and somebody else has changed it.
        """
        with self._lock:
            if self._resting is not None and self._resting != stamp(self.path):
                raise BusyError(f"{self.path} has changed since it was opened for reading only; open it again")
            try:
                outermost = not self.connection.in_transaction
            except sqlite3.ProgrammingError as error:
                raise translated(error, self.path, self.wait_seconds) from error
            try:
                if outermost:
                    self.connection.execute("BEGIN")
                yield self.connection
            except sqlite3.DatabaseError as error:
                raise translated(error, self.path, self.wait_seconds) from error
            finally:
                if outermost and self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def aside(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction for what changes no answer: it makes no epoch, and waits for nobody.

        Yields:
            The connection.

        Raises:
            BusyError: Another process is writing.
        """
        with self._lock:
            self.connection.execute("PRAGMA busy_timeout = 0")
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                yield self.connection
                self.connection.execute("COMMIT")
            except sqlite3.DatabaseError as error:
                raise translated(error, self.path, 0.0) from error
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                self.connection.execute(f"PRAGMA busy_timeout = {round(1000 * self.wait_seconds)}")

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
                seen = translated(error, self.path, self.wait_seconds)
                if isinstance(seen, BusyError):
                    return False
                raise seen from error

    def copy_to(self, path: Path) -> None:
        """Write a whole copy of the current epoch to a new file, while others go on reading and writing.

        Args:
            path: File to create; a kill in between leaves no file of that name.

        Raises:
            BusyError: There is no room for it.
            FormatError: This database is damaged.
        """
        partial = path.with_suffix(".partial")
        partial.write_bytes(b"")
        target = sqlite3.connect(partial)
        try:
            with self._lock:  # what another thread has not committed yet is no part of the epoch
                self.connection.backup(target)
        except sqlite3.DatabaseError as error:
            partial.unlink(missing_ok=True)
            raise translated(error, path if is_not_writable(error) else self.path, self.wait_seconds) from error
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
                raise translated(error, self.path, self.wait_seconds) from error
            finally:
                source.close()
                incoming.unlink(missing_ok=True)
            self.connection.execute("PRAGMA journal_mode = WAL")
            self._checkpoint()

    def _within(self, deadline: float) -> Callable[[int, int, int], None]:
        """Return a watch over a backup, which by itself would wait for another writer without end."""

        def watch(status: int, _remaining: int, _total: int) -> None:
            if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} and time.monotonic() > deadline:
                raise busy(self.path, self.wait_seconds)

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
    partial.write_bytes(b"")  # never absent: it tells settings that lie beside it for ours
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


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder; one that another process deletes meanwhile counts nothing."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total
