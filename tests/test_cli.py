"""The command line: one story from init to restore, what goes to which stream, and exit codes."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from byheart import cli, folder, knowledge, readers
from byheart.fakes import FakeEncoder, FakeReader
from byheart.reader.compact import shipped_weights
from world import write_records


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], world: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in this process, run beside the documents."""
    monkeypatch.chdir(world)

    def call(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        captured = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Result(stopped.value.code, captured.out, captured.err)

    return call


@pytest.fixture
def fake(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line over the fakes: no torch."""
    for module in (knowledge, folder):
        monkeypatch.setattr(module, "SentenceEncoder", lambda config: FakeEncoder())
    monkeypatch.setattr(readers, "CompactReader", lambda config, device: FakeReader())
    return run


@pytest.fixture
def story(fake: Run) -> Run:
    """A knowledge base with all documents."""
    assert fake("init", "kb").code == 0
    assert fake("add", "kb", "docs").code == 0
    return fake


def test_a_story_from_init_to_restore(fake: Run, world: Path) -> None:
    made = fake("init", "kb", "--set", "reader.passages=3")
    assert (made.code, made.err) == (0, "")
    assert "byheart add kb" in made.out
    added = fake("add", "kb", "docs")
    assert added.out.startswith("6 added, 0 updated, 0 unchanged, 0 removed, 0 refused")
    assert "1 unchanged" in fake("add", "kb", "docs/ferry.md").out
    found = fake("search", "kb", "ferry ticket", "-k", "1")
    assert found.out.startswith("1. ")
    assert "docs/ferry.md:" in found.out
    asked = fake("ask", "kb", "Who built the lighthouse of Korva?")
    assert "Mira Tolven" in asked.out
    assert "retrieval · confidence" in asked.out
    assert "[1] docs/lighthouse.md, characters" in asked.out
    assert "documents        6" in fake("status", "kb").out
    assert "docs/ferry.md  The ferry" in fake("documents", "kb").out
    assert "passages = 3" in fake("config", "kb").out
    snap = fake("snapshot", "kb", "snap")
    assert "copied to snap" in snap.out
    gone = fake("remove", "kb", "docs/ferry.md")
    assert gone.out.startswith("1 documents removed, 1 passages deleted")
    assert "four crowns" not in fake("search", "kb", "ferry ticket crowns").out
    back = fake("restore", "kb", "snap")
    assert (back.code, "restored snap as epoch" in back.out) == (0, True)
    assert "four crowns" in fake("search", "kb", "ferry ticket crowns").out
    assert fake("ask", "kb", "--claim", "The tower closes at dusk.").out.startswith("SUPPORTS\n")


def test_the_same_with_the_real_encoder(run: Run) -> None:
    assert run("init", "kb").code == 0
    assert run("add", "kb", "docs", "--json").json["refused"] == []
    hit = run("search", "kb", "What is the price of the boat trip?", "-k", "1", "--json").json[0]
    assert hit[1]["page"] == "docs/ferry.md"
    if not shipped_weights().is_file():
        pytest.skip("the compact reader has no weights yet; everything up to here passed")
    answer = run("ask", "kb", "Who built the lighthouse of Korva?", "--json").json
    assert "Tolven" in answer["text"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "kb", "docs"),
        ("ask", "kb", "Who built the lighthouse?"),
        ("ask", "kb", "xyzzy"),
        ("search", "kb", "Korva"),
        ("search", "kb", "xyzzy"),
        ("status", "kb"),
        ("documents", "kb"),
        ("config", "kb"),
        ("config", "kb", "reader.passages=2"),
        ("snapshot", "kb", "snap"),
        ("remove", "kb", "7"),
        ("tune", "kb", "--questions", "gold.jsonl"),
    ],
)
def test_json_is_one_line_of_json_and_nothing_else(story: Run, world: Path, arguments: tuple[str, ...]) -> None:
    gold = story("search", "kb", "lighthouse Korva", "-k", "1", "--json").json[0][0]["passage_id"]
    write_records(world / "gold.jsonl", [{"question": "lighthouse Korva", "passage": gold}])
    result = story(*arguments, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == 1
    json.loads(result.out)


def test_an_answer_as_json_has_all_its_fields(story: Run) -> None:
    answer = story("ask", "kb", "Who built the lighthouse of Korva?", "--json").json
    assert answer["route"] == "retrieval"
    assert answer["question"] == {"text": "Who built the lighthouse of Korva?", "kind": "question"}
    assert {c["passage_id"] for c in answer["citations"]} <= set(answer["used"])
    assert answer["epoch"] == story("status", "kb", "--json").json["epoch"]
    assert [step["name"] for step in answer["seconds"]] == ["encode", "retrieve", "read"]


def test_questions_from_standard_input_give_one_line_each(story: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Who built the lighthouse?\n\nWhat do puffins eat?\n"))
    lines = [json.loads(line) for line in story("ask", "kb", "-").out.splitlines()]
    assert [line["question"]["text"] for line in lines] == ["Who built the lighthouse?", "What do puffins eat?"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("The tower closes at dusk.\n"))
    assert json.loads(story("ask", "kb", "-", "--claim").out)["text"] == "SUPPORTS"


def test_no_answer_is_said_and_the_nearest_passages_are_listed(story: Run) -> None:
    result = story("ask", "kb", "Zylophant?")
    assert result.code == 0
    assert result.out.startswith("No short answer found in the documents.")
    assert "abstain" in result.out
    assert "docs/lighthouse.md:" in result.out.split("Nearest passages")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("status", "nowhere"), 3, "byheart init nowhere"),
        (("init", "kb"), 3, "already"),
        (("init", "docs"), 3, "other files"),
        (("ask", "kb", "  "), 2, "empty"),
        (("ask", "kb", "x" * 5000), 2, "characters"),
        (("ask", "kb", "Korva?", "--risk", "nan"), 2, "a risk is from 1e-06 to below 1, got nan"),
        (("ask", "kb", "Korva?", "--risk", "0"), 2, "a risk is from 1e-06 to below 1, got 0.0"),
        (("ask", "kb", "Korva?", "--budget", "nan"), 2, "a budget is 0 to 1 retrievals per question, got nan"),
        (("ask", "kb", "Korva?", "--budget", "1.5"), 2, "a budget is 0 to 1 retrievals per question, got 1.5"),
        (("search", "kb", "Korva", "-k", "0"), 2, "k must be at least 1"),
        (("config", "kb", "reader.pasages=3"), 2, "did you mean reader.passages"),
        (("config", "kb", "reader.passages=many"), 2, "must be int"),
        (("config", "kb", "reader"), 2, "PART.NAME=VALUE"),
        (("init", "new", "--set", "nothing=1"), 2, "part.name"),
        (("remove", "kb", ""), 2, "names no document"),
        (("snapshot", "kb", "docs"), 3, "not empty"),
        (("restore", "kb", "docs"), 3, "no knowledge base"),
        (("tune", "kb", "--questions", "missing.jsonl"), 2, "no file"),
    ],
)
def test_an_error_is_one_line_on_standard_error_with_its_exit_code(
    story: Run, arguments: tuple[str, ...], code: int, says: str
) -> None:
    result = story(*arguments)
    assert (result.code, result.out) == (code, "")
    assert says in result.err
    assert result.err.startswith("byheart: ")
    assert "Traceback" not in result.err


def test_a_refused_file_and_a_missing_name_have_exit_codes_of_their_own(story: Run, world: Path) -> None:
    (world / "docs" / "empty.md").write_bytes(b"")
    refused = story("add", "kb", "docs")
    assert refused.code == cli.SOME_REFUSED
    assert "refused  " in refused.out
    missing = story("remove", "kb", "no-such-page", "7")
    assert missing.code == 2
    assert "missing  no-such-page" in missing.out
    assert missing.out.startswith("1 documents removed")


def test_facts_tell_claims_apart_and_one_bad_id_among_good_ones_forgets_nothing(fake: Run, world: Path) -> None:
    rows = [
        {"question": "Who built the lighthouse of Korva?", "answer": "Ilse Marenka"},
        {"question": "The lighthouse of Korva was built by Ilse Marenka.", "answer": "SUPPORTS", "kind": "claim"},
    ]
    (world / "facts.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    assert fake("init", "kb").code == 0
    assert fake("learn", "kb", "facts.jsonl").code == 0
    listed = fake("facts", "kb")
    [question, claim] = [text for text in listed.out.splitlines() if " · used " in text]
    assert ("· claim" in question, "· claim" in claim) == (False, True)
    ids = [fact["id"] for fact in fake("facts", "kb", "--json").json]
    epoch = fake("status", "kb", "--json").json["epoch"]
    for given in (("nonsense", *ids), (*ids, "nonsense")):
        failed = fake("forget", "kb", *given)
        assert (failed.code, failed.out) == (2, "")
        assert "'nonsense'" in failed.err
        assert "nothing was forgotten" in failed.err
    assert fake("facts", "kb").out == listed.out
    assert fake("status", "kb", "--json").json["epoch"] == epoch
    assert fake("forget", "kb", *ids).out.startswith("2 facts forgotten")


def test_a_busy_and_a_damaged_knowledge_base_exit_with_3(
    story: Run, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = knowledge.KnowledgeBase
    monkeypatch.setattr(knowledge, "KnowledgeBase", lambda path: opened(path, wait_seconds=0.1))
    blocker = sqlite3.connect(world / "kb" / "knowledge.sqlite", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    busy = story("remove", "kb", "7")
    blocker.close()
    assert (busy.code, busy.out) == (3, "")
    assert "another process writes" in busy.err
    path = world / "kb" / "knowledge.sqlite"
    path.write_bytes(b"\xa5" * path.stat().st_size)
    damaged = story("status", "kb")
    assert damaged.code == 3
    assert "snapshot" in damaged.err


def test_prune_removes_what_is_gone(story: Run, world: Path) -> None:
    shutil.rmtree(world / "docs" / "birds")
    assert "--prune" in story("add", "kb", "docs").out
    assert "1 removed" in story("add", "kb", "docs", "--prune").out


def test_a_setting_holds_from_the_next_command_on(story: Run) -> None:
    assert story("config", "kb", "reader.passages=2").code == 0
    assert len(story("ask", "kb", "Korva lighthouse harbour", "--json").json["used"]) == 2
    assert (
        story("config", "kb", "retrieval.url=http://host:6333", "--json").json["retrieval"]["url"] == "http://host:6333"
    )


def byheart(*arguments: str, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "byheart", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, **options)


def test_a_process_of_its_own_keeps_streams_and_exit_codes_apart(world: Path) -> None:
    missing = byheart("status", "nowhere", cwd=world)
    assert (missing.returncode, missing.stdout) == (3, "")
    assert missing.stderr.startswith("byheart: nowhere holds no knowledge base")
    usage = byheart("fly", cwd=world)
    assert (usage.returncode, usage.stdout) == (2, "")
    version = byheart("--version", cwd=world)
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout[0].isdigit()


def test_a_reader_that_stops_early_is_no_error(story: Run, world: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [sys.executable, "-m", "byheart", "documents", "kb"],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=world,
        check=False,
    )
    os.close(writing)
    assert (process.returncode, process.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["init", "add", "ask", "search", "remove", "status", "documents", "config", "tune"])
def test_every_command_explains_itself(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: byheart {command}")
