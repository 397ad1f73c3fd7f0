"""What is found in folders, and what is refused with a reason."""

import gzip
import json
import os
from pathlib import Path

import pytest

from byheart.config import CorpusConfig
from byheart.corpus.files import MEBIBYTE, find, load
from byheart.corpus.questions import read_answered_questions, read_gold_questions
from byheart.errors import DocumentError, InputError
from byheart.types import Kind

CONFIG = CorpusConfig(max_megabytes=1)


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("They dig.")


def test_a_folder_is_walked_in_order_and_what_is_passed_over_is_reported(tmp_path):
    write(tmp_path, "b.md", "a/z.TXT", "a/b/c.jsonl.gz", ".git/config.md", "a/photo.png", "README")
    files, refusals = find([tmp_path])
    assert [str(path.relative_to(tmp_path)) for path in files] == ["a/b/c.jsonl.gz", "a/z.TXT", "b.md"]
    reasons = {str(Path(refusal.source).relative_to(tmp_path)): refusal.reason for refusal in refusals}
    assert sorted(reasons) == [".git", "README", "a/photo.png"]
    assert reasons[".git"] == "is hidden; name it outright to add it"
    assert "of a kind that is not read, .png; read are .md" in reasons["a/photo.png"]
    assert "no suffix" in reasons["README"]


def test_a_hidden_file_named_outright_is_found(tmp_path):
    write(tmp_path, ".notes.md")
    assert find([tmp_path / ".notes.md"]) == ([tmp_path / ".notes.md"], [])


@pytest.mark.parametrize("name", ["photo.png", "gone.md"])
def test_a_named_file_that_cannot_be_added_is_refused(tmp_path, name):
    write(tmp_path, "photo.png")
    files, refusals = find([tmp_path / name])
    assert files == []
    assert [refusal.source for refusal in refusals] == [str(tmp_path / name)]


def test_links_in_a_circle_end_and_each_file_is_found_once(tmp_path):
    write(tmp_path, "a/real.md")
    (tmp_path / "a/again").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "0-link.md").symlink_to(tmp_path / "a/real.md")
    (tmp_path / "nowhere.md").symlink_to(tmp_path / "gone.md")
    (tmp_path / "self.md").symlink_to(tmp_path / "self.md")
    files, refusals = find([tmp_path, tmp_path / "a", tmp_path / "a/real.md"])
    assert files == [tmp_path / "a/real.md"]
    reasons = [refusal.reason for refusal in refusals]
    assert sum("second way" in reason for reason in reasons) == 2
    assert sum("leads nowhere" in reason for reason in reasons) == 2


def test_a_file_named_twice_or_beside_its_folder_counts_once(tmp_path):
    write(tmp_path, "docs/a.md", "docs/b.md")
    a, b = tmp_path / "docs/a.md", tmp_path / "docs/b.md"
    for paths in ([tmp_path / "docs", a], [a, tmp_path / "docs"], [a, a, b], [tmp_path, tmp_path / "docs", b, a]):
        assert find(paths) == ([a, b], [])


def test_a_link_to_a_file_elsewhere_is_followed(tmp_path):
    write(tmp_path, "elsewhere/real.md", "docs/a.md")
    (tmp_path / "docs/link.md").symlink_to(tmp_path / "elsewhere/real.md")
    assert find([tmp_path / "docs"])[0] == [tmp_path / "docs/a.md", tmp_path / "docs/link.md"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.md")
    assert "neither a file nor a folder" in find([tmp_path])[1][0].reason
    with pytest.raises(DocumentError, match="is no file"):
        load(tmp_path / "pipe.md", "pipe.md", CONFIG)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.md", b"", "a.md is empty or blank, 0 bytes"),
        ("a.txt", b" \n\t\n", "is empty or blank, 4 bytes"),
        ("a.txt", "\ufeff \u200b".encode(), "is empty or blank"),
        ("a.html", b"<html><script>x()</script></html>", "is empty or blank"),
        ("a.md", b"---\ntitle: x\n---\n", "is empty or blank"),
        ("a.jsonl", b'{"text": ""}\n', "is empty or blank"),
        ("a.txt", b"MZ\x90\x00\x03", "is binary, byte 3 is zero"),
        ("a.md", bytes(range(1, 32)) * 9, "is binary, .* control characters"),
        ("a.txt", b"\xff\xfea", "is not valid utf-16"),
        ("a.txt", b"x" * (MEBIBYTE + 1), "has 1.0 MiB or more, at most 1 MiB are read; split it"),
        ("a.jsonl.gz", gzip.compress(b" " * (2 * MEBIBYTE)), "MiB or more, at most 1 MiB"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "dig"}')[:-9], "is broken gzip"),
        ("a.png", b"x", "a.png is of a kind that is not read"),
    ],
)
def test_a_file_that_cannot_be_read_says_what_is_wrong(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DocumentError, match=message):
        load(tmp_path / name, name, CONFIG)


def test_a_missing_file_and_a_folder_say_so(tmp_path):
    with pytest.raises(DocumentError, match="does not exist at"):
        load(tmp_path / "gone.md", "gone.md", CONFIG)
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(DocumentError, match="is no file"):
        load(tmp_path / "folder.md", "folder.md", CONFIG)


def test_two_files_with_one_text_are_two_documents(tmp_path):
    write(tmp_path, "a.md", "b.md")
    pages = [load(path, path.name, CONFIG)[0].page for path in find([tmp_path])[0]]
    assert pages == ["a.md", "b.md"]


def test_gold_questions_that_cannot_be_read_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    good = '{"question": "Who?", "passage": "a:0-1"}\n'
    for raw, says in (
        (b"\xff\xfe", "not UTF-8"),
        (good.encode() + b"[" * 100_000, "line 2"),
        (good.encode() + b'{"question": " ", "passage": "a:0-1"}', "line 2: the question is empty"),
    ):
        path.write_bytes(raw)
        with pytest.raises(InputError, match=says):
            read_gold_questions(path)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"question": "It sails daily.", "kind": "claim", "answers": ["TRUE"]}, "SUPPORTS or REFUTES"),
        ({"question": "It sails daily.", "kind": "claim", "answers": ["SUPPORTS", "supports"]}, "SUPPORTS or REFUTES"),
        ({"question": "When does it sail?", "answers": ["daily", " "]}, "blank"),
        ({"question": "When does it sail?", "answers": "daily"}, "list"),
        ({"question": "When does it sail?"}, "answers"),
    ],
)
def test_answers_that_no_answer_can_equal_are_refused_with_file_and_line(
    tmp_path: Path, line: dict[str, object], says: str
) -> None:
    path = tmp_path / "asked.jsonl"
    good = {"question": "Is it blue?", "answers": []}
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps(line)}\n", "utf-8")
    with pytest.raises(InputError, match=says) as raised:
        read_answered_questions(path)
    assert f"{path}, line 3" in str(raised.value)


def test_a_question_without_answers_is_one_where_only_abstaining_is_right(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    lines = [
        {"question": "Is it blue?", "answers": []},
        {"question": "It sails.", "kind": "claim", "answers": ["REFUTES"]},
        {"question": "It is blue.", "kind": "claim", "answers": []},
    ]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    questions, gold = read_answered_questions(path)
    assert [question.kind for question in questions] == [Kind.QUESTION, Kind.CLAIM, Kind.CLAIM]
    assert gold == [(), ("REFUTES",), ()]
