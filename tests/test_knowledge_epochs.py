"""What changes together and what must not be left behind: epochs, snapshots, forgetting, mismatches."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest

from byheart.config import Config
from byheart.errors import (
    AlreadyExistsError,
    BusyError,
    ConfigError,
    EncoderMismatchError,
    FormatError,
    KnowledgeError,
    NotAKnowledgeBaseError,
    PassageError,
    VectorIndexError,
)
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init, open_knowledge
from byheart.interfaces import Floats
from byheart.knowledge import KnowledgeBase
from byheart.reports import Progress, no_progress
from byheart.types import Document, Question
from world import bytes_of, check_whole, open_fake, write_records


class BrokenEncoder(FakeEncoder):
    """Gives NaN for one word: the index refuses it in the middle of a write."""

    def encode_passages(self, texts: list[str], progress: Progress = no_progress) -> Floats:  # type: ignore[override]
        vectors = super().encode_passages(texts, progress)
        vectors[[i for i, text in enumerate(texts) if "broken" in text]] = float("nan")
        return vectors


def test_a_write_that_fails_leaves_no_trace(world: Path) -> None:
    with init(world / "kb", encoder=BrokenEncoder(), reader=FakeReader()) as kb:
        kb.add(world / "docs")
        before, epoch = kb.search("Korva", 50), kb.epoch
        with pytest.raises(VectorIndexError):
            kb.add_documents([Document("ok", "Ok", "Korva again."), Document("bad", "Bad", "Korva broken.")])
        assert (kb.search("Korva", 50), kb.epoch) == (before, epoch)
        check_whole(kb)
        kb.add_documents([Document("ok", "Ok", "Korva again.")])
        assert kb.epoch == epoch + 1


def test_a_second_writer_is_told_and_readers_go_on(filled: KnowledgeBase, world: Path) -> None:
    blocker = sqlite3.connect(world / "kb" / "knowledge.sqlite", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with open_fake(world / "kb", wait_seconds=0.1) as second:
        assert second.ask("Who built the lighthouse?").text is not None
        with pytest.raises(BusyError, match="try again"):
            second.add_documents([Document("x", "X", "text")])
        with pytest.raises(BusyError):
            second.remove("7")
        blocker.execute("ROLLBACK")
        blocker.close()
        second.add_documents([Document("x", "X", "text")])
        check_whole(second)


def test_an_open_knowledge_base_notices_what_another_wrote(filled: KnowledgeBase, world: Path) -> None:
    assert filled.search("zebras", 1)[0][0].lexical == 0
    with open_fake(world / "kb") as other:
        other.add_documents([Document("z", "Z", "Zebras graze behind the lighthouse.")])
    assert filled.search("zebras", 1)[0][1].page == "z"
    assert filled.ask("Where do zebras graze?").epoch == filled.epoch
    with open_fake(world / "kb") as other:
        other.remove("z")
    assert all(passage.page != "z" for _, passage in filled.search("zebras", 50))


def test_a_removed_document_stays_gone_after_reopening_and_after_the_next_add(
    filled: KnowledgeBase, world: Path
) -> None:
    removed = filled.search("ferry ticket crowns", 1)[0][1]
    filled.remove("docs/ferry.md")
    filled.close()
    with open_fake(world / "kb") as kb:
        for _ in range(2):
            assert all(passage.page != removed.page for _, passage in kb.search("ferry ticket crowns", 50))
            assert removed.id not in kb.ask("What does a ferry ticket cost?").used
            with pytest.raises(PassageError, match="search again"):
                kb.passages([removed.id])
            kb.add_documents([Document("pier", "The pier", "A ticket for the pier costs one crown.")])


def test_removed_text_is_in_no_file(kb: KnowledgeBase, world: Path) -> None:
    chance, n = random.Random(3), 240
    texts = [" ".join(f"zqterm{i}x{j}q" for j in range(chance.randint(1, 50))) for i in range(n)]
    documents = [Document(f"zqpage{i}q", f"zqtitle{i}q", f"zqmark{i}q and {text}.") for i, text in enumerate(texts)]
    chance.shuffle(documents)
    for first in range(0, n, 40):
        kb.add_documents(documents[first : first + 40])
    gone = documents[: n // 2]
    for first in range(0, len(gone), 20):
        report = kb.remove(*(document.page for document in gone[first : first + 20]))
        assert report.notices == ()
    open_content = bytes_of(world / "kb")
    kb.close()
    for content in (open_content, bytes_of(world / "kb")):
        for document in gone:
            number = document.page.removeprefix("zqpage").removesuffix("q")
            for trace in (f"zqpage{number}q", f"zqtitle{number}q", f"zqmark{number}q", f"zqterm{number}x"):
                assert trace.encode() not in content


def test_the_old_text_of_an_updated_file_is_in_no_file(filled: KnowledgeBase, world: Path) -> None:
    assert b"four crowns" in bytes_of(world / "kb")
    (world / "docs" / "ferry.md").write_text("# The ferry\n\nIt is free.\n", "utf-8")
    filled.add(world / "docs")
    assert b"four crowns" not in bytes_of(world / "kb")


def test_what_a_reader_keeps_from_leaving_the_file_is_said_and_leaves_later(filled: KnowledgeBase, world: Path) -> None:
    reader = sqlite3.connect(world / "kb" / "knowledge.sqlite", isolation_level=None)
    with open_fake(world / "kb", wait_seconds=0.1) as impatient:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM documents").fetchone()
        report = impatient.remove("docs/ferry.md")
        assert report.removed == ("docs/ferry.md",)
        assert any("traces" in notice for notice in report.notices)
        reader.execute("ROLLBACK")
        reader.close()
        assert impatient.remove("nothing of that name").notices == ()
    assert b"four crowns" not in bytes_of(world / "kb")


def test_a_snapshot_is_a_knowledge_base_of_its_own(filled: KnowledgeBase, world: Path) -> None:
    folder = filled.snapshot(world / "snap")
    filled.remove("docs")
    with open_fake(folder) as copy:
        assert copy.status().documents == 6
        assert copy.ask("Who built the lighthouse?").text is not None
        check_whole(copy)
        copy.remove("7")
    assert filled.status().documents == 0
    with pytest.raises(AlreadyExistsError, match="another folder"):
        filled.snapshot(world / "snap")


def test_restoring_is_a_new_epoch_that_every_open_handle_notices(filled: KnowledgeBase, world: Path) -> None:
    question = "What does a ferry ticket cost?"
    filled.snapshot(world / "snap")
    (world / "docs" / "ferry.md").write_text("# The ferry\n\nA ticket for the ferry costs nine crowns.\n", "utf-8")
    filled.add(world / "docs")
    with open_fake(world / "kb") as other:
        assert "nine" in str(other.ask(question).text)
        before = other.epoch
        assert filled.restore(world / "snap") == before + 1
        for kb in (filled, other):
            assert kb.epoch == before + 1
            assert "four" in str(kb.ask(question).text)
            check_whole(kb)
        assert filled.add(world / "docs").updated == ("docs/ferry.md",)
        assert "nine" in str(other.ask(question).text)
    assert sorted(path.name for path in (world / "kb").iterdir() if "partial" in path.name) == []


def test_restoring_what_is_none_or_of_another_encoder_changes_nothing(filled: KnowledgeBase, world: Path) -> None:
    init(world / "foreign", encoder=FakeEncoder("another")).close()
    epoch = filled.epoch
    with pytest.raises(EncoderMismatchError, match="its own folder"):
        filled.restore(world / "foreign")
    with pytest.raises(NotAKnowledgeBaseError):
        filled.restore(world / "docs")
    assert (filled.epoch, filled.status().documents) == (epoch, 6)


def test_another_encoder_is_a_mismatch_and_nothing_is_written(filled: KnowledgeBase, world: Path) -> None:
    with pytest.raises(EncoderMismatchError, match="was built with fake"):
        KnowledgeBase(world / "kb", encoder=FakeEncoder("another"))
    with KnowledgeBase(world / "kb") as configured, pytest.raises(EncoderMismatchError, match="all-MiniLM-L6-v2"):
        configured.search("anything")
    assert filled.status().documents == 6


def test_init_takes_an_empty_folder_only(world: Path) -> None:
    (world / "empty").mkdir()
    init(world / "empty", encoder=FakeEncoder()).close()
    with pytest.raises(AlreadyExistsError, match="already"):
        init(world / "empty", encoder=FakeEncoder())
    with pytest.raises(AlreadyExistsError, match="other files"):
        init(world / "docs", encoder=FakeEncoder())
    with pytest.raises(NotAKnowledgeBaseError, match="byheart init"):
        open_knowledge(world / "docs")


def test_settings_are_kept_in_the_folder_and_checked_on_opening(kb: KnowledgeBase, world: Path) -> None:
    kb.configure("reader.passages", 3)
    with open_fake(world / "kb") as again:
        assert again.config.reader.passages == 3
    with pytest.raises(ConfigError, match=r"reader\.passages"):
        kb.configure("reader.passagess", 4)
    (world / "kb" / "config.toml").write_text("[reader]\npasages = 3\n", "utf-8")
    with pytest.raises(ConfigError, match=r"config\.toml.*did you mean reader\.passages"):
        open_fake(world / "kb")
    (world / "kb" / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        open_fake(world / "kb")
    (world / "kb" / "config.toml").unlink()
    with open_fake(world / "kb") as again:
        assert again.config == Config()


def test_a_damaged_knowledge_base_is_a_format_error_and_its_snapshot_still_opens(
    filled: KnowledgeBase, world: Path
) -> None:
    filled.snapshot(world / "snap")
    filled.close()
    path = world / "kb" / "knowledge.sqlite"
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="snapshot"):
        open_fake(world / "kb")
    with open_fake(world / "snap") as copy:
        assert copy.status().documents == 6


@pytest.mark.parametrize("page_number", range(2, 14))
def test_damage_of_any_page_is_noticed_as_ours_or_not_met(filled: KnowledgeBase, world: Path, page_number: int) -> None:
    filled.close()
    path = world / "kb" / "knowledge.sqlite"
    raw = bytearray(path.read_bytes())
    raw[4096 * page_number : 4096 * (page_number + 1)] = b"\xa5" * 4096
    path.write_bytes(raw)
    write_records(world / "docs" / "new.jsonl", [{"id": "n", "text": "A new record."}])
    # Any other error, one of sqlite3 above all, fails the test.
    with contextlib.suppress(FormatError), open_fake(world / "kb") as kb:
        for use in (kb.documents, kb.status, lambda: kb.ask("Korva"), lambda: kb.add(world / "docs")):
            use()
        kb.remove("7")


def test_an_index_of_another_analyzer_is_refused(filled: KnowledgeBase, world: Path) -> None:
    with filled._database.write() as connection:
        connection.execute("UPDATE state SET analyzer_version = 999")
    with pytest.raises(FormatError, match="analyzer version 999"):
        open_fake(world / "kb")


def test_tuning_is_an_epoch_of_its_own_and_changes_the_ranking(filled: KnowledgeBase, world: Path) -> None:
    texts = ["Who built the lighthouse?", "When does the ferry leave?", "What do puffins eat?"]
    questions = [Question.parse(text) for text in texts]
    gold = [filled.search(text, 1)[0][0].passage_id for text in texts]
    epoch = filled.epoch
    fitted = filled.tune(questions, gold)
    assert (filled.epoch, fitted.n, fitted.recall_at_5) == (epoch + 1, 3, 1.0)
    with open_fake(world / "kb") as again:
        hit = again.search(texts[0], 1)[0][0]
        lexical_only = again.search_many(questions, 1, dense_weight=0.0)[0][0]
        dense_only = again.search_many(questions, 1, dense_weight=1.0)[0][0]
        assert dense_only.score == pytest.approx(dense_only.dense)
        weight = fitted.dense_weight
        assert hit.score == pytest.approx(weight * hit.dense + (1 - weight) * lexical_only.score, abs=1e-5)
    with pytest.raises(PassageError):
        filled.tune(questions, ["gone:0-1", *gold[1:]])
    assert filled.epoch == epoch + 1


def test_status_tells_sizes_and_versions(filled: KnowledgeBase, world: Path) -> None:
    status = filled.status()
    assert (status.documents, status.facts, status.format_version) == (6, 0, 4)
    assert (status.encoder, status.encoder_hash) == ("fake", FakeEncoder().fingerprint)
    assert (status.index, status.reader, status.epoch) == ("sqlite", "compact", filled.epoch)
    assert status.bytes_on_disk == sum(p.stat().st_size for p in (world / "kb").iterdir())
    assert status.passages == sum(n for _, _, n in filled.documents())


def test_a_closed_book_answer_has_no_sources_and_an_epoch(filled: KnowledgeBase) -> None:
    answer = filled.ask_many([Question.parse("Who built the lighthouse?")], closed_book=True)[0]
    assert (answer.hits, answer.citations, answer.used, answer.epoch) == ((), (), (), filled.epoch)


def test_closing_twice_is_safe(kb: KnowledgeBase) -> None:
    kb.close()
    kb.close()


QDRANT = Config().replace("retrieval.index", "qdrant").replace("retrieval.url", ":memory:")


def test_a_qdrant_mirror_gives_the_same_hits_through_adds_updates_and_removals(
    filled: KnowledgeBase, world: Path
) -> None:
    pytest.importorskip("qdrant_client")
    questions = ["Who built the lighthouse of Korva?", "ticket crowns", "bell", "nothing of the kind"]
    with init(world / "mirrored", QDRANT, encoder=FakeEncoder(), reader=FakeReader()) as mirrored:
        mirrored.add(world / "docs")
        for text in questions:
            assert _rounded(mirrored, text) == _rounded(filled, text)
        (world / "docs" / "ferry.md").write_text("# The ferry\n\nA ticket costs nine crowns.\n", "utf-8")
        for kb in (filled, mirrored):
            kb.add(world / "docs")
            kb.remove("7", "docs/birds")
        for text in questions:
            assert _rounded(mirrored, text) == _rounded(filled, text)
        check_whole(mirrored)


def test_a_qdrant_mirror_is_repaired_on_opening_after_a_restore_and_after_a_failed_write(world: Path) -> None:
    pytest.importorskip("qdrant_client")
    with init(world / "kb", QDRANT, encoder=BrokenEncoder(), reader=FakeReader()) as kb:
        kb.add(world / "docs")
        full = _rounded(kb, "Korva lighthouse")
        kb.snapshot(world / "snap")
        with pytest.raises(VectorIndexError):
            kb.add_documents([Document("ok", "Ok", "Korva lighthouse lives."), Document("bad", "Bad", "Korva broken.")])
        assert _rounded(kb, "Korva lighthouse") == full
        changed = world / "docs" / "lighthouse.md"
        text = changed.read_text("utf-8")
        changed.write_text(text.replace("Korva", "Dorva"), "utf-8")
        kb.add(world / "docs")
        assert _rounded(kb, "Korva lighthouse") != full
        kb.restore(world / "snap")
        assert _rounded(kb, "Korva lighthouse") == full
    with KnowledgeBase(world / "kb", encoder=BrokenEncoder()) as again:
        assert _rounded(again, "Korva lighthouse") == full


def test_a_commit_that_fails_leaves_index_and_mirror_alike(
    world: Path,
) -> None:
    pytest.importorskip("qdrant_client")
    with init(world / "kb", QDRANT, encoder=FakeEncoder(), reader=FakeReader()) as kb:
        kb.add(world / "docs")
        before, epoch = _rounded(kb, "Korva lighthouse ticket"), kb.epoch
        kb._database.connection.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON state BEGIN SELECT raise(ABORT, 'disk'); END"
        )
        for fail in (
            lambda: kb.add_documents([Document("g", "Ghost", "Korva lighthouse ticket ghost.")]),
            lambda: kb.remove("docs"),
        ):
            with pytest.raises(KnowledgeError, match="disk"):
                fail()
            assert (_rounded(kb, "Korva lighthouse ticket"), kb.epoch) == (before, epoch)
        kb._database.connection.execute("DROP TRIGGER full")
        check_whole(kb)


def _rounded(kb: KnowledgeBase, text: str) -> list[tuple[str, float, float, float]]:
    return [(h.passage_id, round(h.score, 4), round(h.lexical, 4), round(h.dense, 4)) for h, _ in kb.search(text, 50)]


def test_a_setting_that_stored_weights_depend_on_is_refused_once_there_are_passages(kb):
    kb.configure("retrieval.b", 0.5)
    kb.add_documents([Document("a", "", "The heron fishes at dawn.")])
    with pytest.raises(ConfigError, match="init"):
        kb.configure("retrieval.k1", 2.0)
    assert kb.configure("reader.passages", 3).reader.passages == 3
