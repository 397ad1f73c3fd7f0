"""Adding and removing: ids, changes, conflicts, duplicates, and every way to name what is to go."""

from __future__ import annotations

from pathlib import Path

import pytest

from byheart.errors import InputError, PassageError, QuestionError
from byheart.fakes import FakeEncoder
from byheart.knowledge import KnowledgeBase
from byheart.types import Document, Route
from world import RECORDS, WORLD, check_whole, open_fake, write_records

PAGES = [
    "6f1d2a3e-2f5b-5c0e-9a58-b7a0c1e4d911",
    "7",
    "docs/birds/puffin.txt",
    "docs/ferry.md",
    "docs/lighthouse.md",
    "h-8",
]


def pages(kb: KnowledgeBase) -> list[str]:
    return [page for page, _, _ in kb.documents()]


def found(kb: KnowledgeBase, question: str) -> list[str]:
    return [passage.text for _, passage in kb.search(question, 20)]


def test_every_document_of_a_folder_is_added_under_an_id_that_people_know(filled: KnowledgeBase) -> None:
    assert pages(filled) == PAGES
    assert filled.status().documents == 6
    check_whole(filled)


def test_adding_again_changes_nothing(filled: KnowledgeBase, world: Path) -> None:
    before, epoch = [p.id for _, p in filled.search("Korva", 20)], filled.epoch
    report = filled.add(world / "docs")
    assert sorted(report.unchanged) == PAGES
    assert (report.added, report.updated, report.removed, report.refused) == ((), (), (), ())
    assert (report.passages_added, report.passages_removed, report.epoch) == (0, 0, epoch)
    assert [p.id for _, p in filled.search("Korva", 20)] == before


def test_ids_are_the_same_from_any_working_directory(
    filled: KnowledgeBase, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world / "docs" / "birds")
    report = filled.add("puffin.txt", "../ferry.md")
    assert sorted(report.unchanged) == ["docs/birds/puffin.txt", "docs/ferry.md"]
    assert report.added == ()


def test_int_str_and_uuid_ids_round_trip_to_the_passages(filled: KnowledgeBase) -> None:
    for record in RECORDS:
        hits = filled.search(str(record["text"]), 1)
        assert hits[0][1].page == str(record["id"])
        assert filled.passages([hits[0][0].passage_id])[0].text == record["text"]


def test_a_changed_file_is_updated_and_its_old_passages_are_gone(filled: KnowledgeBase, world: Path) -> None:
    old = next(p for _, p in filled.search("ferry ticket crowns", 1))
    (world / "docs" / "ferry.md").write_text("# The ferry\n\nA ticket now costs nine crowns, every day.\n", "utf-8")
    report = filled.add(world / "docs")
    assert report.updated == ("docs/ferry.md",)
    assert report.passages_removed == 1
    assert "nine crowns" in found(filled, "ferry ticket crowns")[0]
    assert not any("four crowns" in text for text in found(filled, "ferry ticket crowns"))
    with pytest.raises(PassageError, match="search again"):
        filled.passages([old.id])
    check_whole(filled)


def test_an_updated_document_changes_the_answer_at_once(filled: KnowledgeBase, world: Path) -> None:
    question = "What does a ferry ticket cost?"
    before = filled.ask(question)
    assert before.text is not None
    assert "four crowns" in before.text
    (world / "docs" / "ferry.md").write_text("# The ferry\n\nA ticket for the ferry costs nine crowns.\n", "utf-8")
    filled.add(world / "docs" / "ferry.md")
    after = filled.ask(question)
    assert after.text is not None
    assert "nine crowns" in after.text
    assert after.epoch == filled.epoch > before.epoch


def test_records_that_leave_a_jsonl_file_leave_the_knowledge_base(filled: KnowledgeBase, world: Path) -> None:
    write_records(world / "docs" / "notes.jsonl", [RECORDS[0], {"id": 9, "text": "A new record of the harbour."}])
    report = filled.add(world / "docs" / "notes.jsonl")
    assert (report.added, report.unchanged) == (("9",), ("7",))
    assert sorted(report.removed) == sorted([str(RECORDS[1]["id"]), str(RECORDS[2]["id"])])
    assert not any("Spring tide" in text for text in found(filled, "spring tide pier"))
    check_whole(filled)


def test_a_file_that_is_gone_is_reported_and_pruned_on_request(filled: KnowledgeBase, world: Path) -> None:
    (world / "docs" / "ferry.md").unlink()
    (world / "docs" / "notes.jsonl").unlink()
    report = filled.add(world / "docs")
    assert report.removed == ()
    assert any("--prune" in notice for notice in report.notices)
    pruned = filled.add(world / "docs", prune=True)
    assert sorted(pruned.removed) == sorted(["docs/ferry.md", *(str(r["id"]) for r in RECORDS)])
    assert pages(filled) == ["docs/birds/puffin.txt", "docs/lighthouse.md"]
    check_whole(filled)


def test_pruning_a_folder_leaves_what_was_added_from_elsewhere(
    kb: KnowledgeBase, world: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "far.md"
    elsewhere.write_text("# Far\n\nA document from far away.\n", "utf-8")
    kb.add(world / "docs", elsewhere)
    kb.add_documents([Document("made", "Made", "Made by the program.")])
    far = kb._ingest.page_of(elsewhere)
    elsewhere.unlink()
    assert kb.add(world, prune=True).removed == ()
    assert {far, "made"} <= set(pages(kb))
    (world / "docs" / "ferry.md").unlink()
    assert kb.add(world, prune=True).removed == ("docs/ferry.md",)
    assert kb.add(elsewhere.parent, prune=True).removed == (far,)


def test_a_file_of_which_a_record_was_removed_is_still_pruned_when_it_is_gone(
    filled: KnowledgeBase, world: Path
) -> None:
    filled.remove("7")
    (world / "docs" / "notes.jsonl").unlink()
    pruned = filled.add(world / "docs", prune=True)
    assert sorted(pruned.removed) == sorted(str(record["id"]) for record in RECORDS if record["id"] != 7)
    assert filled.add(world / "docs").notices == ()


def test_what_a_folder_passes_over_is_not_gone(kb: KnowledgeBase, world: Path) -> None:
    hidden = world / "docs" / ".hidden.md"
    hidden.write_text("# Hidden\n\nNamed outright.\n", "utf-8")
    kb.add(hidden)
    assert kb.add(world / "docs", prune=True).removed == ()
    hidden.unlink()
    assert kb.add(world / "docs", prune=True).removed == ("docs/.hidden.md",)


def test_one_id_in_two_files_is_refused_and_added_once_the_first_is_gone(kb: KnowledgeBase, world: Path) -> None:
    first = write_records(world / "a.jsonl", [{"id": 1, "text": "The first file says red."}])
    second = write_records(
        world / "b.jsonl", [{"id": "1", "text": "The second file says blue."}, {"id": 2, "text": "Two."}]
    )
    report = kb.add(first, second)
    assert report.added == ("1", "2")
    assert [r.source for r in report.refused] == ["b.jsonl"]
    assert "taken by a.jsonl" in report.refused[0].reason
    again = kb.add(first, second)
    assert [r.source for r in again.refused] == ["b.jsonl"], "a conflict does not go quiet"
    kb.remove("a.jsonl")
    assert kb.add(second).added == ("1",)
    assert "blue" in found(kb, "second file says blue")[0]
    check_whole(kb)


def test_documents_with_one_text_are_two_documents(kb: KnowledgeBase) -> None:
    report = kb.add_documents(
        [Document("a", "Same", "One and the same text."), Document("b", "Same", "One and the same text.")]
    )
    assert report.added == ("a", "b")
    assert [p.page for _, p in kb.search("the same text", 5)] == ["a", "b"]
    kb.remove("a")
    assert [p.page for _, p in kb.search("the same text", 5)] == ["b"]


def test_one_page_twice_in_one_add_is_refused_the_second_time(kb: KnowledgeBase) -> None:
    report = kb.add_documents([Document("a", "A", "First words."), Document("a", "A", "Second words.")])
    assert report.added == ("a",)
    assert len(report.refused) == 1
    assert found(kb, "words") == ["First words."]


@pytest.mark.parametrize(
    "document",
    [
        Document("", "t", "text"),
        Document("  ", "t", "text"),
        Document("p", "t", "nul \x00 inside"),
        Document("p", "t", "lone \ud800 surrogate"),
        Document("p\x00", "t", "text"),
        Document("p", "\udfff", "text"),
    ],
)
def test_a_document_that_spans_could_not_count_in_is_refused(kb: KnowledgeBase, document: Document) -> None:
    report = kb.add_documents([document, Document("good", "Good", "A good text.")])
    assert (report.added, len(report.refused)) == (("good",), 1)
    report.refused[0].source.encode("utf-8")
    check_whole(kb)


def test_spans_count_characters_in_any_script(kb: KnowledgeBase) -> None:
    text = "😀 Ελληνικά και 日本語. " * 12 + "The last words are plain."
    kb.add_documents([Document("u", "U", text)])
    for passage in kb.passages([p.id for _, p in kb.search("last words plain 日本語", 20)]):
        assert passage.text == text[passage.start : passage.end]


@pytest.mark.parametrize("text", ["", "   \n"])
def test_a_blank_document_is_kept_without_passages_and_with_a_notice(kb: KnowledgeBase, text: str) -> None:
    report = kb.add_documents([Document("blank", "", text)])
    assert (report.added, report.passages_added) == (("blank",), 0)
    assert any("blank" in notice for notice in report.notices)
    assert kb.search("anything") == []
    assert kb.remove("blank").removed == ("blank",)


def test_what_cannot_be_read_is_refused_with_a_reason_and_the_rest_is_added(kb: KnowledgeBase, world: Path) -> None:
    (world / "docs" / "empty.md").write_bytes(b"")
    (world / "docs" / "binary.txt").write_bytes(bytes(range(256)) * 20)
    (world / "docs" / "broken.pdf").write_bytes(b"%PDF-1.7 nothing follows")
    report = kb.add(world / "docs", world / "missing")
    assert len(report.added) == 6
    assert len(report.refused) == 4
    assert all(refusal.reason for refusal in report.refused)
    check_whole(kb)


def test_adding_nothing_is_an_error(kb: KnowledgeBase) -> None:
    with pytest.raises(InputError, match="at least one"):
        kb.add()


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("7", ["7"]),
        ("docs/ferry.md", ["docs/ferry.md"]),
        ("docs/notes.jsonl", ["6f1d2a3e-2f5b-5c0e-9a58-b7a0c1e4d911", "7", "h-8"]),
        ("docs/birds", ["docs/birds/puffin.txt"]),
        ("docs/birds/", ["docs/birds/puffin.txt"]),
        ("docs", PAGES),
    ],
)
def test_a_page_a_file_or_a_folder_is_removed(filled: KnowledgeBase, world: Path, name: str, gone: list[str]) -> None:
    report = filled.remove(name)
    assert (list(report.removed), report.missing, report.notices) == (gone, (), ())
    assert pages(filled) == [page for page in PAGES if page not in gone]
    check_whole(filled)
    assert sorted(filled.add(world / "docs").added) == gone, "adding again brings back what was removed"
    check_whole(filled)


def test_removing_by_path_works_from_another_working_directory(
    filled: KnowledgeBase, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world / "docs" / "birds")
    assert filled.remove("../ferry.md", "puffin.txt").removed == ("docs/birds/puffin.txt", "docs/ferry.md")
    assert filled.remove(world / "docs" / "lighthouse.md").removed == ("docs/lighthouse.md",)


def test_a_name_that_means_two_things_is_an_error(
    filled: KnowledgeBase, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = world / "docs" / "docs" / "ferry.md"
    inner.parent.mkdir()
    inner.write_text("# Another\n\nAnother ferry.\n", "utf-8")
    filled.add(inner)
    monkeypatch.chdir(world / "docs")
    with pytest.raises(InputError, match="absolute path"):
        filled.remove("docs/ferry.md")
    assert filled.remove(inner).removed == ("docs/docs/ferry.md",)
    assert "docs/ferry.md" in pages(filled)


@pytest.mark.parametrize("name", ["", "  ", "a\x00b"])
def test_an_empty_name_never_means_the_working_directory(
    filled: KnowledgeBase, world: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(world / "docs")
    with pytest.raises(InputError):
        filled.remove(name)
    assert pages(filled) == PAGES


@pytest.mark.parametrize("name", ["/", ".", "..", "./", "docs/.."])
def test_a_folder_that_holds_the_whole_knowledge_base_is_not_removed_by_a_slip(
    filled: KnowledgeBase, world: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(world)
    with pytest.raises(InputError, match="holds the whole knowledge base"):
        filled.remove(name)
    assert pages(filled) == PAGES


def test_a_name_that_matches_nothing_is_reported_and_changes_nothing(filled: KnowledgeBase) -> None:
    epoch = filled.epoch
    for name in ("doc", "docs/ferry", "7x", "%", "docs/*"):
        report = filled.remove(name)
        assert (report.removed, report.missing) == ((), (name,))
    assert filled.epoch == epoch


def test_removing_needs_no_encoder(filled: KnowledgeBase, world: Path) -> None:
    with KnowledgeBase(world / "kb") as without:
        assert without.remove("7").removed == ("7",)
        assert "encoder" not in vars(without)


def test_an_empty_knowledge_base_abstains(kb: KnowledgeBase) -> None:
    answer = kb.ask("How high is the lighthouse?")
    assert (answer.text, answer.route, answer.hits, answer.used) == (None, Route.ABSTAIN, (), ())
    assert kb.search("anything", 5) == []
    assert kb.ask_many([]) == []


def test_what_is_cited_was_used_and_quotes_the_document(filled: KnowledgeBase) -> None:
    answer = filled.ask("Who built the lighthouse of Korva in 1841?")
    assert answer.text is not None
    assert "Mira Tolven" in answer.text
    assert answer.route is Route.RETRIEVAL
    assert {c.passage_id for c in answer.citations} <= set(answer.used) <= {h.passage_id for h in answer.hits}
    for citation in answer.citations:
        passage = filled.passages([citation.passage_id])[0]
        assert passage.text[citation.start - passage.start : citation.end - passage.start] == citation.text
        assert citation.page == passage.page
    assert [step.name for step in answer.seconds] == ["encode", "retrieve", "read"]


def test_a_batch_answers_like_one_question_at_a_time(filled: KnowledgeBase) -> None:
    from byheart.types import Question

    texts = ["Who built the lighthouse?", "What do puffins eat?", "xyzzy plugh", "What does a ticket cost?"]
    together = filled.ask_many([Question.parse(text) for text in texts])
    alone = [filled.ask(text) for text in texts]
    assert [(a.text, a.citations, [h.passage_id for h in a.hits]) for a in together] == [
        (a.text, a.citations, [h.passage_id for h in a.hits]) for a in alone
    ]


def test_a_claim_is_answered_by_a_verdict(filled: KnowledgeBase) -> None:
    assert filled.ask("The tower closes at dusk.", claim=True).text == "SUPPORTS"
    assert filled.ask("The tower closes at noon.", claim=True).text == "REFUTES"


@pytest.mark.parametrize("text", ["", "  \n", "x" * 5000, "\ud800"])
def test_a_question_that_cannot_be_read_is_an_error(filled: KnowledgeBase, text: str) -> None:
    with pytest.raises(QuestionError):
        filled.ask(text)
    with pytest.raises(QuestionError):
        filled.search(text)


@pytest.mark.parametrize("text", ["?", "the of and", "☃", "'; DROP TABLE passages; --", 'NEAR("a" b) OR *'])
def test_a_question_without_index_terms_is_defined(filled: KnowledgeBase, text: str) -> None:
    assert len(filled.search(text, 50)) <= filled.status().passages
    filled.ask(text)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_an_error_and_above_the_corpus_is_fine(filled: KnowledgeBase, k: int) -> None:
    with pytest.raises(InputError):
        filled.search("Korva", k)
    assert 1 <= len(filled.search("Korva", 1000)) <= filled.status().passages


def test_a_thousand_documents_come_and_go_without_a_trace_in_the_scores(kb: KnowledgeBase, world: Path) -> None:
    from byheart.folder import init

    kept = [Document(f"kept{i}", f"Kept {i}", f"Topic {i} meets shared words number {i % 7}.") for i in range(60)]
    noise = [Document(f"noise{i}", f"Noise {i}", f"Shared words and topic {i % 60} with term{i}.") for i in range(1000)]
    kb.add_documents(kept)
    kb.add_documents(noise, origin="noise")
    assert kb.remove("noise").passages_removed == 1000
    check_whole(kb)
    with init(world / "fresh", encoder=FakeEncoder()) as fresh:
        fresh.add_documents(kept)
        assert kb.status().terms == fresh.status().terms
        for i in range(0, 60, 7):
            question = f"shared words about topic {i} and term{i}"
            assert [h for h, _ in kb.search(question, 100)] == [h for h, _ in fresh.search(question, 100)]


def test_two_knowledge_bases_in_one_process_are_independent(filled: KnowledgeBase, world: Path) -> None:
    from byheart.folder import init

    with init(world / "other", encoder=FakeEncoder()) as other:
        other.add_documents([Document("x", "X", "Only the other one knows about zebras.")])
        assert len(other.search("zebras lighthouse", 10)) == 1
        assert not any("zebras" in text for text in found(filled, "zebras"))
        filled.remove("docs")
        assert other.status().documents == 1
        assert (filled.status().documents, filled.epoch == other.epoch) == (0, False)


def test_reopening_gives_the_same_hits(filled: KnowledgeBase, world: Path) -> None:
    before = filled.search("lighthouse steps visitors", 10)
    with open_fake(world / "kb") as again:
        assert again.search("lighthouse steps visitors", 10) == before
        assert sorted(again.add(world / "docs").unchanged) == PAGES


def test_world_texts_are_stored_character_by_character(filled: KnowledgeBase) -> None:
    text = WORLD["birds/puffin.txt"]
    passage = filled.search("puffins sand eels", 1)[0][1]
    assert text[passage.start : passage.end] == passage.text
