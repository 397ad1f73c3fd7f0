"""The database: epochs, one writer and many readers, migrations, damage, copies."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from byheart.errors import BusyError, FormatError, NotAKnowledgeBaseError
from byheart.store.database import APPLICATION_ID, FORMAT_VERSION, Database, create, folder_bytes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create(tmp_path / "knowledge.sqlite", "fake", "f" * 16, 1, 4)
    return tmp_path / "knowledge.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    held = Database(path, wait_seconds=0.3)
    yield held
    held.close()


def put(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO parameters VALUES (?, ?)", (name, value))


def parameters(database: Database) -> dict[str, str]:
    with database.read() as connection:
        return dict(connection.execute("SELECT name, value FROM parameters"))


HOLDER = (
    "import sqlite3, sys\n"
    "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
    "c.execute('BEGIN IMMEDIATE')\n"
    "print('held', flush=True)\n"
    "sys.stdin.readline()\n"
    "c.execute('ROLLBACK')\n"
)


@pytest.fixture
def other_writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a write; it ends with its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    if process.poll() is None:
        process.communicate("\n")
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait(20)


def test_a_commit_is_the_next_epoch(database: Database) -> None:
    assert database.epoch == 0
    for expected in (1, 2, 3):
        with database.write() as connection:
            put(connection, "a", str(expected))
        assert database.epoch == expected


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_write_leaves_no_trace(database: Database, error: type[BaseException]) -> None:
    with database.write() as connection:
        put(connection, "a", "1")
    with pytest.raises(error):
        _write_and_fail(database, error)
    assert (parameters(database), database.epoch) == ({"a": "1"}, 1)
    with database.write() as connection:
        put(connection, "a", "3")
    assert (parameters(database), database.epoch) == ({"a": "3"}, 2)


def test_a_second_writer_gets_a_clear_error(database: Database, other_writer: subprocess.Popen[str]) -> None:
    with pytest.raises(BusyError, match=r"another process writes to .*waited 0\.3 s"), database.write():
        pytest.fail("the transaction must not begin")
    assert database.epoch == 0


def test_a_second_writer_waits_for_the_first(path: Path, other_writer: subprocess.Popen[str]) -> None:
    patient = Database(path, wait_seconds=20)
    threading.Timer(0.3, other_writer.terminate).start()
    with patient.write() as connection:
        put(connection, "a", "1")
    assert patient.epoch == 1
    patient.close()


def test_a_reader_sees_its_epoch_to_the_end_while_another_writes(path: Path, database: Database) -> None:
    writer = Database(path)
    with database.read() as connection:
        before = dict(connection.execute("SELECT name, value FROM parameters"))
        threading.Thread(target=lambda: _write(writer)).start()
        for _ in range(200):
            assert dict(connection.execute("SELECT name, value FROM parameters")) == before
            assert database.epoch == 0
    _join(writer)
    assert (database.epoch, parameters(database)) == (1, {"a": "1"})
    writer.close()


def _write(database: Database) -> None:
    with database.write() as connection:
        put(connection, "a", "1")


def _write_and_fail(database: Database, error: type[BaseException]) -> None:
    with database.write() as connection:
        put(connection, "a", "2")
        put(connection, "b", "2")
        raise error


def _join(database: Database) -> None:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.name.startswith("Thread"):
            thread.join(20)


def test_reads_nest(database: Database) -> None:
    with database.read(), database.read():
        assert database.epoch == 0
    with database.write() as connection:
        put(connection, "a", "1")
        with database.read() as inner:
            assert inner.execute("SELECT count(*) FROM parameters").fetchone()[0] == 1
    assert database.epoch == 1


def test_opening_nothing_is_an_error_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotAKnowledgeBaseError, match="byheart init"):
        Database(tmp_path / "none" / "knowledge.sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to look like one " * 100])
def test_a_file_that_is_no_database_is_a_format_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "knowledge.sqlite").write_bytes(content)
    with pytest.raises(FormatError, match=r"knowledge\.sqlite"):
        Database(tmp_path / "knowledge.sqlite")
    assert (tmp_path / "knowledge.sqlite").read_bytes() == content


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "knowledge.sqlite")
    other.execute("CREATE TABLE t (a)")
    other.commit()
    other.close()
    before = (tmp_path / "knowledge.sqlite").read_bytes()
    with pytest.raises(FormatError, match="no knowledge base of byheart"):
        Database(tmp_path / "knowledge.sqlite")
    assert (tmp_path / "knowledge.sqlite").read_bytes() == before


def test_a_newer_format_says_to_upgrade(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    with pytest.raises(FormatError, match=rf"format version {FORMAT_VERSION + 1}.*upgrade"):
        Database(path)


def test_a_fresh_file_and_a_copy_can_be_opened_while_another_process_writes(
    tmp_path: Path, path: Path, other_writer: subprocess.Popen[str]
) -> None:
    held = Database(path, wait_seconds=0.1)
    held.copy_to(tmp_path / "copy.sqlite")
    blocker = sqlite3.connect(tmp_path / "copy.sqlite", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    Database(tmp_path / "copy.sqlite", wait_seconds=0.1).close()
    blocker.close()
    held.close()


def empty_version_0(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    return path


def test_an_older_format_is_migrated_on_opening(tmp_path: Path) -> None:
    held = Database(empty_version_0(tmp_path / "knowledge.sqlite"))
    assert held.connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT_VERSION
    tables = {row[0] for row in held.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {"state", "documents", "passages", "vectors", "terms", "origins", "parameters"} <= tables
    with pytest.raises(FormatError, match="never finished"):
        held.state(1)
    held.close()


def test_two_processes_may_migrate_at_once(tmp_path: Path) -> None:
    path, failures = empty_version_0(tmp_path / "knowledge.sqlite"), []

    def migrate() -> None:
        try:
            Database(path).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []


def test_the_state_names_encoder_and_analyzer(database: Database) -> None:
    assert database.state(1) == {
        "encoder": "fake", "encoder_fingerprint": "f" * 16, "analyzer_version": 1, "width": 4,
    }  # fmt: skip
    with pytest.raises(FormatError, match="analyzer version 1, this byheart has 2"):
        database.state(2)


def test_damage_is_a_format_error_and_no_traceback_of_sqlite(path: Path, database: Database) -> None:
    with database.write() as connection:
        connection.executemany("INSERT INTO parameters VALUES (?, ?)", [(f"p{i}", "x" * 500) for i in range(200)])
    database.close()
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)  # the header is whole, everything behind it is not
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="damaged"):
        Database(path).state(1)


def test_a_copy_is_whole_and_apart(tmp_path: Path, database: Database) -> None:
    _write(database)
    database.copy_to(tmp_path / "copy.sqlite")
    with database.write() as connection:
        put(connection, "a", "2")
    copy = Database(tmp_path / "copy.sqlite")
    assert (parameters(copy), copy.epoch) == ({"a": "1"}, 1)
    copy.close()
    assert not list(tmp_path.glob("*.partial"))


def test_taking_over_a_copy_is_a_new_epoch_for_everyone(tmp_path: Path, path: Path, database: Database) -> None:
    _write(database)
    database.copy_to(tmp_path / "copy.sqlite")
    for value in ("2", "3"):
        with database.write() as connection:
            put(connection, "a", value)
    other = Database(path)
    assert other.epoch == 3
    database.replace_by(tmp_path / "copy.sqlite")
    for held in (database, other):
        assert (parameters(held), held.epoch) == ({"a": "1"}, 4)
    with other.write() as connection:
        put(connection, "a", "5")
    assert (parameters(database), database.epoch) == ({"a": "5"}, 5)
    assert database.connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    other.close()
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".partial") == []


def test_taking_over_a_copy_does_not_wait_for_another_writer_without_end(
    tmp_path: Path, path: Path, database: Database
) -> None:
    database.copy_to(tmp_path / "copy.sqlite")
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(BusyError):
        database.replace_by(tmp_path / "copy.sqlite")
    blocker.execute("ROLLBACK")
    blocker.close()
    database.replace_by(tmp_path / "copy.sqlite")
    assert database.epoch == 1


@pytest.mark.parametrize("content", [b"", b"x" * 9000])
def test_a_bad_copy_is_refused_and_changes_nothing(tmp_path: Path, database: Database, content: bytes) -> None:
    _write(database)
    (tmp_path / "bad.sqlite").write_bytes(content)
    with pytest.raises(FormatError):
        database.replace_by(tmp_path / "bad.sqlite")
    assert (parameters(database), database.epoch) == ({"a": "1"}, 1)


def test_scrubbing_is_due_after_deletion_only_and_changes_no_epoch(path: Path, database: Database) -> None:
    with database.write() as connection:
        connection.executemany("INSERT INTO parameters VALUES (?, ?)", [(f"p{i}", "x" * 500) for i in range(200)])
    size = path.stat().st_size
    assert database.scrub()
    with database.write() as connection:
        connection.execute("DELETE FROM parameters")
        database.owe_scrub()
    assert path.stat().st_size == size
    assert database.scrub()
    assert path.stat().st_size < size
    assert database.epoch == 2
    assert parameters(database) == {}


def test_scrubbing_says_when_it_must_wait_and_stays_due(path: Path, database: Database) -> None:
    with database.write():
        database.owe_scrub()
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    assert not database.scrub()
    blocker.close()
    assert "unscrubbed" in parameters(database)
    assert database.scrub()
    assert parameters(database) == {}


def test_folder_bytes_counts_files_of_all_depths(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "x").write_bytes(b"123")
    (tmp_path / "a" / "b" / "y").write_bytes(b"4567")
    assert folder_bytes(tmp_path) == 7
