"""What a hostile or unlucky user does ends in a result or in one clear line, and loses nothing."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from byheart import cli, folder, knowledge, readers
from byheart.config import Config
from byheart.corpus import files
from byheart.corpus.html import load_html
from byheart.corpus.markdown import load_markdown
from byheart.corpus.source import Source
from byheart.errors import (
    ConfigError,
    FormatError,
    InputError,
    KnowledgeError,
    MissingExtraError,
    PassageError,
    QuestionError,
)
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.knowledge import KnowledgeBase
from byheart.store.settings import CONFIG_FILE
from byheart.types import Document, Question
from world import check_whole, open_fake

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(filled: KnowledgeBase, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line over the fakes, beside a filled knowledge base."""
    for module in (knowledge, folder):
        monkeypatch.setattr(module, "SentenceEncoder", lambda config: FakeEncoder())
    monkeypatch.setattr(readers, "CompactReader", lambda config, device: FakeReader())
    monkeypatch.chdir(world)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        assert isinstance(stopped.value.code, int)
        return (stopped.value.code, *capsys.readouterr())

    return call


# Questions


@pytest.mark.parametrize("text", ["\u200b\u200b", "\ufeff", "\x01 \x7f", "\u202e"])
def test_a_question_that_nobody_can_see_is_empty(text: str) -> None:
    with pytest.raises(QuestionError, match="empty"):
        Question.parse(text)


@pytest.mark.parametrize("text", ["😀", "?", "' OR 1=1 --", '"a" NEAR(b) *', "docs/ferry.md:0-10", "the of and", "מי"])
def test_any_visible_question_gets_a_result(filled: KnowledgeBase, text: str) -> None:
    for claim in (False, True):
        assert filled.ask(text, claim=claim).question.text == text


# Documents


@pytest.mark.parametrize(
    "text",
    [
        "".join("  " * depth + f"- item {depth}\n" for depth in range(120)),
        "> " * 60 + "item 119",
        "* " * 300 + "item 119",
    ],
)
def test_deeply_nested_markdown_keeps_its_words(text: str) -> None:
    assert "item 119" in load_markdown(Source("p", "n", text.encode()))[0].text


def test_a_marked_section_that_is_none_is_read_as_text() -> None:
    assert "after" in load_html(Source("p", "n", b"<body>before<![foo bar<p>after"))[0].text
    assert "after" in load_markdown(Source("p", "n", b"<div>\n<![foo bar\n</div>\n\nafter\n"))[0].text


def test_unclosed_lists_do_not_make_a_page_of_spaces() -> None:
    page = "<ul><li>x" * 1000
    assert len(load_html(Source("p", "n", page.encode()))[0].text) < 5 * len(page)


def test_a_file_name_that_is_no_utf_8_is_refused_and_the_others_are_added(kb: KnowledgeBase, world: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(world / "docs") + b"/bad\xff.md")).write_text("eels")
    except OSError:
        pytest.skip("this file system refuses such names itself")
    report = kb.add(world / "docs")
    (refusal,) = report.refused
    assert "UTF-8" in refusal.reason
    refusal.source.encode("utf-8")
    assert len(report.added) == 6


def test_a_format_whose_package_is_missing_does_not_keep_the_others_out(
    kb: KnowledgeBase, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world / "docs" / "old.pdf").write_bytes(b"%PDF-1.7")

    def missing(source: Source) -> list[Document]:
        raise MissingExtraError("reading PDF needs a package; install it")

    monkeypatch.setitem(files._LOADERS, files.Kind.PDF, missing)
    report = kb.add(world / "docs")
    assert [refusal.reason for refusal in report.refused] == ["reading PDF needs a package; install it"]
    assert len(report.added) == 6


def test_a_file_far_too_large_is_refused_unread(kb: KnowledgeBase, world: Path) -> None:
    huge = world / "docs" / "huge.txt"
    with huge.open("wb") as file:
        file.truncate(2**40)
    (refusal,) = kb.add(huge).refused
    assert "MiB are read" in refusal.reason
    huge.unlink()


@pytest.mark.parametrize("name", ["", "  ", Path("a\x00b"), "a\ud800"])
def test_adding_a_name_that_is_none_adds_nothing(
    kb: KnowledgeBase, world: Path, monkeypatch: pytest.MonkeyPatch, name: str | Path
) -> None:
    monkeypatch.chdir(world)
    if str(name).strip():
        assert len(kb.add(name).refused) == 1
    else:
        with pytest.raises(InputError, match="nothing to add"):
            kb.add(name)
    assert kb.documents() == []


@pytest.mark.parametrize("origin", ["", " ", "\ud800", "a\x00"])
def test_an_origin_that_cannot_be_stored_is_an_input_error(kb: KnowledgeBase, origin: str) -> None:
    with pytest.raises(InputError, match="no name for documents"):
        kb.add_documents([Document("p", "t", "text")], origin)


def test_odd_file_names_are_pages_and_each_is_one_line_for_people(run: Run, world: Path) -> None:
    names = ["new\nline.md", "esc\x1b[31m.md", "y:0-10.md", "cafe\u0301.md", "q\"uo'te.md", "\u202eturned.md", " .md"]
    (world / "odd").mkdir()
    for name in names:
        (world / "odd" / name).write_text("The walrus sleeps.", "utf-8")
    code, out, _ = run("add", "kb", "odd")
    assert (code, out.split(",")[0]) == (0, f"{len(names)} added")
    _, out, _ = run("documents", "kb")
    assert out.count("\n") == 6 + len(names)
    assert "new\\nline.md" in out
    assert not any(character in out for character in "\x1b\u202e")
    assert run("search", "kb", "walrus", "-k", "9")[1].count("\n") == 3 * len(names) - 1  # one has no title
    assert {row[0] for row in json.loads(run("documents", "kb", "--json")[1])} >= {f"odd/{name}" for name in names}
    assert run("remove", "kb", *(f"odd/{name}" for name in names))[0] == 0


def test_a_page_is_looked_up_without_reading_its_text(filled: KnowledgeBase) -> None:
    # A row of a table WITHOUT ROWID is compared whole: each passage of a book would read the book.
    query = "EXPLAIN QUERY PLAN SELECT 1 FROM documents WHERE page = 'x'"
    (plan,) = filled._database.connection.execute(query)
    assert "COVERING INDEX" in plan[-1]


# Settings and folders


def test_a_setting_must_be_valid_unicode_and_one_value(run: Run, world: Path) -> None:
    with pytest.raises(ConfigError, match="lone surrogate"):
        Config().replace("reader.url", "\udcff")
    code, _, err = run("config", "kb", "reader.passages=1\nfoo=2")
    assert (code, err.count("\n")) == (2, 1)


def test_a_config_file_may_begin_with_a_byte_order_mark_or_be_gone(filled: KnowledgeBase, world: Path) -> None:
    path = world / "kb" / CONFIG_FILE
    path.write_bytes(b"\xef\xbb\xbf[reader]\r\npassages = 2\r\n")
    with open_fake(world / "kb") as kb:
        assert kb.config.reader.passages == 2
    path.unlink()
    with open_fake(world / "kb") as kb:
        kb.snapshot(world / "snap")
    with open_fake(world / "snap") as kb:
        assert kb.status().documents == 6


@pytest.mark.parametrize("left", ["config.toml.partial", "knowledge.partial", "knowledge.partial-journal"])
def test_what_a_killed_init_or_snapshot_leaves_is_no_obstacle(filled: KnowledgeBase, world: Path, left: str) -> None:
    for name in ("new", "snap"):
        (world / name).mkdir()
        (world / name / "knowledge.partial").touch()  # the first thing that either writes
        (world / name / left).write_bytes(b"half")
    init(world / "new", encoder=FakeEncoder(), reader=FakeReader()).close()
    with open_fake(filled.snapshot(world / "snap")) as kb:
        check_whole(kb)


def test_what_the_system_refuses_is_one_line(run: Run, world: Path) -> None:
    (world / "file").write_text("x")
    for arguments in (("init", "file/kb"), ("snapshot", "kb", "file/snap")):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("byheart: file/")


# Damage


def damaged(world: Path, statement: str) -> Path:
    """Return a copy of the knowledge base after a statement that should never be run on it."""
    folder = world / "damaged"
    shutil.copytree(world / "kb", folder)
    with sqlite3.connect(folder / "knowledge.sqlite") as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(statement)
    connection.close()
    return folder


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE passages",
        "DELETE FROM documents",
        "DROP INDEX passages_by_page",
        "UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'vectors'",
    ],
)
def test_a_damaged_snapshot_is_not_restored(filled: KnowledgeBase, world: Path, statement: str) -> None:
    epoch, found = filled.epoch, filled.search("Korva", 10)
    with pytest.raises(FormatError, match="damaged"):
        filled.restore(damaged(world, statement))
    assert (filled.epoch, filled.search("Korva", 10)) == (epoch, found)
    check_whole(filled)
    assert sorted(path.name for path in (world / "kb").iterdir() if "partial" in path.name) == []


def test_a_table_that_is_gone_and_a_broken_schema_are_damage(filled: KnowledgeBase, world: Path) -> None:
    with pytest.raises(FormatError, match="no such table"):
        open_fake(damaged(world, "DROP TABLE passages")).status()
    shutil.rmtree(world / "damaged")
    broken = "UPDATE sqlite_schema SET sql = CAST(x'ff00fe' AS TEXT), name = CAST(x'ff' AS TEXT) WHERE name = 'terms'"
    with pytest.raises(FormatError, match="damaged"):
        open_fake(damaged(world, broken)).status()


def test_random_damage_is_a_result_or_a_clear_error(filled: KnowledgeBase, world: Path) -> None:
    filled.close()
    raw, chance = (world / "kb" / "knowledge.sqlite").read_bytes(), random.Random(11)
    (world / "fuzz").mkdir()
    for _ in range(40):
        content = bytearray(raw)
        for _ in range(chance.choice((1, 20, 400))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (world / "fuzz" / "knowledge.sqlite").write_bytes(content)
        try:
            with open_fake(world / "fuzz") as kb:
                kb.ask("Who built the lighthouse?")
                kb.add(world / "docs")
                kb.remove("docs")
        except (KnowledgeError, PassageError):
            pass
        for path in (world / "fuzz").iterdir():
            path.unlink()


# Use at once, and after the end


def test_a_snapshot_holds_nothing_that_another_thread_has_not_committed(filled: KnowledgeBase, world: Path) -> None:
    snapped = threading.Thread(target=filled.snapshot, args=(world / "snap",))
    with filled._database.write() as connection:
        (n,) = connection.execute("SELECT count(*) FROM parameters").fetchone()
        connection.execute("DELETE FROM documents")
        snapped.start()
        snapped.join(0.2)
        connection.execute("INSERT INTO parameters VALUES ('late', '1')")
    snapped.join()
    with sqlite3.connect(world / "snap" / "knowledge.sqlite") as snapshot:
        rows = snapshot.execute("SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM parameters)").fetchone()
    snapshot.close()
    assert rows in {(6, n), (0, n + 1)}


def test_many_threads_on_one_knowledge_base_all_get_through(filled: KnowledgeBase) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(8):
                if number % 2:
                    filled.ask("Who built the lighthouse?")
                else:
                    filled.add_documents([Document(f"w{number}-{step}", "t", "Heron")], f"o{number}")
                    filled.remove(f"w{number}-{step}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    check_whole(filled)


def test_a_closed_knowledge_base_says_so(filled: KnowledgeBase, world: Path) -> None:
    filled.close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: filled.ask("Korva?"),
        lambda: filled.add(world / "docs"),
        lambda: filled.remove("7"),
        lambda: filled.status(),
        lambda: filled.epoch,
        lambda: filled.snapshot(world / "snap"),
    )
    for call in calls:
        with pytest.raises(KnowledgeError, match="was closed; open it again"):
            call()


def test_a_passage_id_that_cannot_be_stored_is_not_there(filled: KnowledgeBase) -> None:
    with pytest.raises(PassageError):
        filled.passages(["\ud800"])


def test_nearest_passages_that_are_removed_meanwhile_are_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(kb: KnowledgeBase, passage_ids: object) -> None:
        raise PassageError("there is no passage")

    monkeypatch.setattr(KnowledgeBase, "passages", gone)
    code, out, err = run("ask", "kb", "xyzzy?")
    assert (code, err) == (0, "")
    assert out.startswith("No short answer found")


# Streams


def test_output_in_ascii_is_escaped_and_json_stays_json(
    run: Run, filled: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.add_documents([Document("straße 灯", "Ünï", "The éclair — “quoted”.")])
    for flags in ((), ("--json",)):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
        assert run("documents", "kb", *flags)[0] == 0
        assert b"stra\\xdfe \\u706f  \\xdcn\\xef" in raw.getvalue() or flags
    assert ["straße 灯", "Ünï", 1] in json.loads(raw.getvalue())


def test_closed_streams_are_no_error_and_a_full_one_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run("ask", "kb", "-") == (0, "", "")
    monkeypatch.setattr(sys, "stdout", None)
    assert run("documents", "kb", "--json")[0] == 0

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert run("documents", "kb")[::2] == (
        1,
        "byheart: [Errno 28] No space left on device; free space or rights, or pass another path, then run it again\n",
    )


def test_a_question_among_many_that_cannot_be_read_names_its_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"Who built the lighthouse?\n\n\xff\xfe\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stream)
    code, out, err = run("ask", "kb", "-")
    assert (code, out.count("\n"), err.count("\n")) == (2, 1, 1)
    assert err.startswith("byheart: line 3: ")


def test_an_error_message_is_one_line_whatever_the_name(run: Run, world: Path) -> None:
    code, out, err = run("status", "no\nsuch\x1b[31m")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "\x1b" not in err
    with pytest.raises(KnowledgeError):
        KnowledgeBase(world / "no\nsuch")
