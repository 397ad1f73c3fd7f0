"""The ledger: what is new, known or in conflict; what is kept; what a search finds; what leaves no trace."""

import sqlite3
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.errors import FactError, FormatError
from byheart.memory.digests import ensure_digests, read_digests
from byheart.memory.ledger import Ledger
from byheart.memory.standing import Novelty, Standing
from byheart.store.database import Database, create
from byheart.text.question_keys import fact_id
from byheart.types import FactState, Kind, NewFact, Source

OPENS = NewFact("When does the harbour open?", "At 6:00", ("Opening time of the harbour?",))
KEEPER = NewFact("Who keeps the lamp?", "Ada Brandt", id="keeper")
CLAIM = NewFact("The harbour is open.", "SUPPORTS", kind=Kind.CLAIM)
PLACE = Source("harbour.md", "harbour.md:0-90", "harbour.md", 12, 19)
ODD = (
    NewFact("Cafe\u0301 à Zürich?", "Ouvert à 8\u00a0h"),
    NewFact("👩\u200d👩\u200d👧 who?", "👨\u200d🚀 Yūki"),
    NewFact("متى يفتح الميناء؟", "الساعة السادسة"),
    NewFact("港は何時に開きますか。", "六時"),
    NewFact("항구는 언제 여나요?", "여섯 시"),
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    create(tmp_path / "knowledge.sqlite", "fake", "f" * 16, 1, 4)
    held = Database(tmp_path / "knowledge.sqlite")
    yield held
    held.close()


@pytest.fixture(params=[True, False], ids=["texts kept", "texts not kept"])
def ledger(database: Database, request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """A ledger inside a write transaction."""
    with database.write() as connection:
        yield Ledger(connection, request.param)


@pytest.fixture
def kept(database: Database) -> Iterator[Ledger]:
    """A ledger that keeps texts, inside a write transaction."""
    with database.write() as connection:
        yield Ledger(connection, keep_text=True)


def write(ledger: Ledger, *facts: NewFact, source: Source = PLACE) -> list[int]:
    return [ledger.write(fact, source, FactState.MEMORISED, "") for fact in facts]


def rows(ledger: Ledger) -> list[object]:
    tables = ("facts", "fact_questions", "fact_versions", "fact_uses", "parameters")
    return [ledger._connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


def test_what_is_written_is_read_back(kept: Ledger) -> None:
    (number,) = write(kept, OPENS)
    fact = kept.fact(fact_id(OPENS.question, Kind.QUESTION))
    assert (fact.kind, fact.questions, fact.answer) == (Kind.QUESTION, (OPENS.question, *OPENS.paraphrases), "At 6:00")
    assert (fact.source, fact.version, fact.state, fact.reason, fact.uses) == (PLACE, 1, FactState.MEMORISED, "", 0)
    assert fact.changed_at.endswith("+00:00")
    assert kept.number(fact.id) == number
    assert kept.questions_of(number) == fact.questions
    assert kept.n_questions(number) == 2


def test_where_texts_are_not_kept_a_fact_has_everything_else(database: Database) -> None:
    with database.write() as connection:
        ledger = Ledger(connection, keep_text=False)
        (number,) = write(ledger, KEEPER)
        fact = ledger.fact("keeper")
        assert (fact.questions, fact.answer, fact.source) == ((), None, PLACE)
        assert (ledger.questions_of(number), ledger.n_questions(number)) == ((), 1)


def test_importing_twice_changes_nothing(ledger: Ledger) -> None:
    facts = (OPENS, KEEPER, CLAIM, *ODD)
    numbers = write(ledger, *facts)
    before = rows(ledger)
    decomposed = [replace(f, question=unicodedata.normalize("NFD", f.question)) for f in facts]
    for again in (facts, decomposed):
        standings = [ledger.standing(fact) for fact in again]
        assert {standing.verdict for standing in standings} == {Novelty.UNCHANGED}
        assert [standing.number for standing in standings] == numbers
        assert not any(standing.must_relearn or standing.extra or standing.shared for standing in standings)
    assert rows(ledger) == before


def test_asking_how_a_fact_stands_writes_nothing_even_into_an_empty_ledger(ledger: Ledger) -> None:
    before = rows(ledger)
    standing = ledger.standing(OPENS)
    wanted = fact_id(OPENS.question, Kind.QUESTION)
    assert standing == Standing(Novelty.NEW, None, wanted, OPENS.paraphrases)
    assert rows(ledger) == before


def test_another_answer_to_the_same_question_is_a_conflict_that_names_the_fact(ledger: Ledger) -> None:
    (number,) = write(ledger, KEEPER)
    for question in ("Who keeps the lamp?", "WHO keeps the  lamp"):
        standing = ledger.standing(NewFact(question, "Bo"))
        assert (standing.verdict, standing.number, standing.fact_id) == (Novelty.CONFLICT, number, "keeper")
        assert "fact 'keeper' answers this question otherwise" in standing.reason
        assert "remove that fact first, or give this question another wording" in standing.reason
        assert ("Ada Brandt" in standing.reason) is ledger._keep_text


def test_case_counts_in_answers_but_not_in_questions(ledger: Ledger) -> None:
    write(ledger, NewFact("Which unit?", "mW"))
    assert ledger.standing(NewFact("which UNIT", "mW")).verdict is Novelty.UNCHANGED
    assert ledger.standing(NewFact("Which unit?", "MW")).verdict is Novelty.CONFLICT
    assert ledger.standing(NewFact("Which unit?", " mW\n")).verdict is Novelty.UNCHANGED


def test_a_question_and_a_claim_in_the_same_words_are_two_facts(ledger: Ledger) -> None:
    write(ledger, NewFact("The harbour is open", "SUPPORTS"))
    assert ledger.standing(replace(CLAIM, answer="REFUTES")).verdict is Novelty.NEW
    write(ledger, replace(CLAIM, answer="REFUTES"))
    assert ledger.counts() == (2, 2)


def test_further_paraphrases_extend_a_fact(ledger: Ledger) -> None:
    (number,) = write(ledger, OPENS)
    again = replace(OPENS, paraphrases=("OPENING time of the harbour", "From when on can ships come in?"))
    standing = ledger.standing(again)
    assert (standing.verdict, standing.number) == (Novelty.EXTENDED, number)
    assert standing.extra == ("From when on can ships come in?",)
    assert ledger.add_questions(number, again.paraphrases) == 1
    assert ledger.add_questions(number, again.paraphrases) == 0
    assert ledger.standing(again).verdict is Novelty.UNCHANGED
    assert ledger.n_questions(number) == 3


def test_a_paraphrase_finds_the_fact_as_its_question_does(ledger: Ledger) -> None:
    (number,) = write(ledger, OPENS)
    standing = ledger.standing(NewFact("Opening time of the harbour?", "At 6:00"))
    assert (standing.verdict, standing.number) == (Novelty.UNCHANGED, number)


def test_a_known_id_with_another_question_and_the_same_answer_is_a_further_paraphrase(ledger: Ledger) -> None:
    (number,) = write(ledger, KEEPER)
    standing = ledger.standing(NewFact("Whose is the lamp?", "Ada Brandt", ("Who has the lamp?",), id="keeper"))
    assert (standing.verdict, standing.number) == (Novelty.EXTENDED, number)
    assert standing.extra == ("Whose is the lamp?", "Who has the lamp?")


def test_a_known_id_with_another_answer_or_of_another_kind_is_a_conflict(ledger: Ledger) -> None:
    write(ledger, KEEPER)
    other = ledger.standing(NewFact("Who built it?", "Bo", id="keeper"))
    assert (other.verdict, other.fact_id) == (Novelty.CONFLICT, "keeper")
    assert "another id" in other.reason
    claim = ledger.standing(NewFact("Ada keeps it.", "SUPPORTS", id="keeper", kind=Kind.CLAIM))
    assert claim.verdict is Novelty.CONFLICT
    assert "is that of a question, and this is a claim" in claim.reason


def test_a_paraphrase_that_another_fact_answers_otherwise_is_a_conflict(ledger: Ledger) -> None:
    write(ledger, KEEPER)
    standing = ledger.standing(NewFact("Who lives there?", "Bo", ("who keeps the lamp",)))
    assert (standing.verdict, standing.fact_id) == (Novelty.CONFLICT, "keeper")
    assert "the paraphrase 'who keeps the lamp'" in standing.reason


def test_a_paraphrase_that_another_fact_answers_alike_stays_with_that_fact(ledger: Ledger) -> None:
    write(ledger, KEEPER)
    new = NewFact("Who lives there?", "Ada Brandt", ("Who keeps the lamp?", "Who is at home?"))
    standing = ledger.standing(new)
    assert (standing.verdict, standing.extra) == (Novelty.NEW, ("Who is at home?",))
    assert standing.shared == ("Who keeps the lamp?",)
    (number,) = write(ledger, new)
    assert ledger.n_questions(number) == 2
    assert ledger.standing(KEEPER).fact_id == "keeper"
    again = ledger.standing(new)
    assert (again.verdict, again.number, again.shared) == (Novelty.UNCHANGED, number, ("Who keeps the lamp?",))


def test_a_question_of_another_fact_is_no_further_paraphrase(ledger: Ledger) -> None:
    write(ledger, KEEPER)
    (number,) = write(ledger, NewFact("Who lives there?", "Ada Brandt"))
    assert ledger.add_questions(number, ["Who keeps the lamp?", "Who is in?"]) == 1


@pytest.mark.parametrize("state", [FactState.REFUSED, FactState.STALE])
def test_a_fact_that_memory_does_not_answer_with_is_to_be_learned_again(ledger: Ledger, state: FactState) -> None:
    (number,) = write(ledger, OPENS)
    ledger.set_state(number, state, "its page has changed")
    assert ledger.counts() == (1, 0)
    known = ledger.standing(OPENS)
    assert (known.verdict, known.must_relearn) == (Novelty.UNCHANGED, True)
    more = ledger.standing(replace(OPENS, paraphrases=("From when on?",)))
    assert (more.verdict, more.must_relearn, more.extra) == (Novelty.EXTENDED, True, ("From when on?",))
    assert ledger.standing(replace(OPENS, answer="At 7:00")).verdict is Novelty.CONFLICT
    ledger.set_state(number, FactState.MEMORISED, "")
    assert not ledger.standing(OPENS).must_relearn


def test_a_fact_that_is_there_is_not_written_again(ledger: Ledger) -> None:
    write(ledger, KEEPER)
    before = rows(ledger)
    for new in (KEEPER, replace(KEEPER, answer="Bo"), replace(KEEPER, id="other")):
        with pytest.raises(FactError, match="'keeper'"):
            write(ledger, new)
    assert rows(ledger) == before


def test_wordings_added_last_can_be_dropped_again_and_no_others(ledger: Ledger) -> None:
    (number,) = write(ledger, OPENS)
    ledger.add_questions(number, ["a?", "b?"])
    before = rows(ledger)
    for texts in ([OPENS.question], ["a?"], [*OPENS.paraphrases, "b?"], [OPENS.question, *OPENS.paraphrases, "a", "b"]):
        with pytest.raises(FactError, match="added last"):
            ledger.drop_questions(number, texts)
    assert ledger.drop_questions(number, ["never held"]) == 0
    assert rows(ledger) == before
    assert ledger.drop_questions(number, ["B", "a", "never held", "a?"]) == 2
    assert ledger.standing(OPENS).verdict is Novelty.UNCHANGED
    assert ledger.standing(NewFact("a?", "x")).verdict is Novelty.NEW
    assert ledger.n_questions(number) == 2


def test_an_update_keeps_the_old_answer_as_a_version(ledger: Ledger) -> None:
    (number,) = write(ledger, OPENS)
    assert ledger.versions(number) == ()
    assert ledger.update(number, "At 7:00", Source("Bo")) == 2
    assert ledger.update(number, "At 8:00", Source("Cy")) == 3
    former = [(old.version, old.answer, old.note, old.passage_id) for old in ledger.versions(number)]
    answers = ["At 6:00", "At 7:00"] if ledger._keep_text else [None, None]
    assert former == [(1, answers[0], PLACE.note, PLACE.passage_id), (2, answers[1], "Bo", None)]
    fact = ledger.by_numbers([number])[number]
    assert (fact.version, fact.source, fact.state) == (3, Source("Cy"), FactState.MEMORISED)
    assert ledger.standing(replace(OPENS, answer="At 8:00")).verdict is Novelty.UNCHANGED
    assert ledger.standing(OPENS).verdict is Novelty.CONFLICT


def test_a_source_can_be_moved_and_found_by_page_passage_and_note(ledger: Ledger) -> None:
    first, second = write(ledger, OPENS, KEEPER)
    (third,) = write(ledger, CLAIM, source=Source("Bo said so"))
    (fourth,) = write(ledger, ODD[0], source=Source("whole page", None, "harbour.md"))
    assert ledger.numbers_of_page("harbour.md") == (first, second, fourth)
    assert ledger.numbers_of_passage("harbour.md:0-90") == (first, second)
    assert ledger.numbers_waiting(["Bo said so", "nobody"]) == (third,)
    assert ledger.numbers_waiting(["bo"]) == ()
    assert ledger.sourced_numbers() == (first, second, fourth)
    ledger.set_source(second, Source("", "b.md:0-9", "b.md", 1, 5))
    assert ledger.numbers_of_page("b.md") == (second,)
    assert ledger.by_numbers([second])[second].source == Source("", "b.md:0-9", "b.md", 1, 5)
    assert ledger.numbers_of_page("\ud800") == ledger.numbers_of_passage("\ud800") == ()


def test_a_fact_that_is_removed_leaves_no_row_and_its_neighbours_stay(ledger: Ledger) -> None:
    first, second = write(ledger, OPENS, KEEPER)
    before = rows(ledger)
    (third,) = write(ledger, CLAIM)
    ledger.update(third, "REFUTES", PLACE)
    ledger.count_uses({fact_id(CLAIM.question, Kind.CLAIM): 1})
    assert ledger.remove([third, third, 99]) == 1
    assert rows(ledger) == before
    assert ledger.standing(CLAIM).verdict is Novelty.NEW
    assert write(ledger, CLAIM)[0] > third  # numbers are never reused
    assert ledger.remove([]) == 0
    assert ledger.remove([first, second]) == 2


def test_removing_a_fact_takes_its_slots_along(ledger: Ledger) -> None:
    (number,) = write(ledger, KEEPER)
    columns = {row[1]: row[2] for row in ledger._connection.execute("PRAGMA table_info(slots)")}
    values = [number if name == "fact" else b"" if kind == "BLOB" else 1 for name, kind in columns.items()]
    ledger._connection.execute(f"INSERT INTO slots VALUES ({','.join('?' * len(values))})", values)
    ledger.remove([number])
    assert ledger._connection.execute("SELECT count(*) FROM slots").fetchone() == (0,)


def test_uses_are_counted_by_id_and_only_of_facts_that_are_there(ledger: Ledger) -> None:
    (number,) = write(ledger, KEEPER)
    ledger.count_uses({"keeper": 2, "gone": 5})
    ledger.count_uses({"keeper": 1})
    ledger.count_uses({})
    assert ledger.by_numbers([number])[number].uses == 3


def test_a_missing_fact_is_an_error_that_names_what_looks_alike(ledger: Ledger) -> None:
    with pytest.raises(FactError, match=r"no fact 'keeper'; list the facts"):
        ledger.fact("keeper")
    write(ledger, KEEPER, *(NewFact(f"Question {i}?", "x", id=f"q-{i:04d}") for i in range(1200)))
    with pytest.raises(FactError, match="no fact 'keepr'; nearest are 'keeper'"):
        ledger.fact("keepr")
    with pytest.raises(FactError, match="'q-0600'"):
        ledger.number("q-06000")
    with pytest.raises(FactError, match=r"no fact '\\ud800'"):
        ledger.fact("\ud800")


def test_what_changes_a_fact_that_is_gone_is_an_error(ledger: Ledger) -> None:
    before = rows(ledger)
    for change in (
        lambda: ledger.set_state(7, FactState.STALE, ""),
        lambda: ledger.set_source(7, PLACE),
        lambda: ledger.update(7, "x", PLACE),
        lambda: ledger.add_questions(7, ["x"]),
    ):
        with pytest.raises(FactError, match="no fact number 7"):
            change()
    assert rows(ledger) == before
    assert (ledger.by_numbers([7]), ledger.questions_of(7), ledger.versions(7)) == ({}, (), ())


def test_two_thousand_facts_come_back_by_number(ledger: Ledger) -> None:
    numbers = write(ledger, *(NewFact(f"Question {i}?", f"Answer {i}", (f"And {i}?",)) for i in range(2000)))
    facts = ledger.by_numbers([*reversed(numbers), numbers[0], 10**9])
    assert list(facts) == numbers
    if ledger._keep_text:
        assert [fact.answer for fact in facts.values()] == [f"Answer {i}" for i in range(2000)]
        assert facts[numbers[1234]].questions == ("Question 1234?", "And 1234?")
    assert ledger.counts() == (2000, 2000)
    many = NewFact("New?", "Answer 7", tuple(f"Question {i}?" for i in range(7, 2000, 1000)))
    assert ledger.standing(many).verdict is Novelty.CONFLICT
    assert ledger.remove(numbers) == 2000


def found(ledger: Ledger, search: str, limit: int | None = None) -> list[str | None]:
    return [fact.answer for fact in ledger.facts(search, limit)]


def test_a_search_ignores_accents_case_and_width(kept: Ledger) -> None:
    write(kept, OPENS, KEEPER, *ODD)
    for search in ("zurich", "ZÜRICH", "Zu\u0308rich", "cafe", "ＣＡＦÉ", "ouvert a"):
        assert found(kept, search) == [ODD[0].answer]
    assert found(kept, "yuki") == [ODD[1].answer]
    assert found(kept, "👩\u200d👩") == [ODD[1].answer]
    assert found(kept, "الميناء") == [ODD[2].answer]
    assert found(kept, "六") == [ODD[3].answer]
    assert found(kept, "어") == []  # no syllable, though 언 begins with it
    assert found(kept, "KEEPER") == found(kept, "brandt") == ["Ada Brandt"]
    assert found(kept, "opening TIME") == ["At 6:00"]


def test_a_search_takes_marks_for_themselves(kept: Ledger) -> None:
    write(kept, NewFact("100%?", "a_b"), NewFact("1000?", "axb"))
    assert found(kept, "0%") == found(kept, "a_b") == ["a_b"]
    for search in ("\ud800", "x\x00y", "'", '"', "%", "*"):
        assert len(found(kept, search)) < 2


def test_facts_are_listed_in_order_up_to_a_limit(kept: Ledger) -> None:
    write(kept, OPENS, KEEPER, CLAIM)
    answers = ["At 6:00", "Ada Brandt", "SUPPORTS"]
    assert found(kept, "") == found(kept, "  ") == found(kept, "harbour.md") == answers
    assert (found(kept, "", 2), found(kept, "harbour", 1), found(kept, "", 0)) == (answers[:2], answers[:1], [])


def test_where_texts_are_not_kept_a_search_sees_ids_notes_and_pages(database: Database) -> None:
    with database.write() as connection:
        ledger = Ledger(connection, keep_text=False)
        write(ledger, KEEPER, source=Source("Bö said so", None, "Hafen.md"))
        write(ledger, OPENS, source=Source(""))
        for search in ("KEEP", "bo said", "hafen"):
            assert [fact.id for fact in ledger.facts(search)] == ["keeper"]
        assert ledger.facts("lamp") == ledger.facts("Ada") == []
        assert len(ledger.facts()) == 2


def bytes_of(database: Database) -> bytes:
    return b"".join(path.read_bytes() for path in database.path.parent.iterdir())


def test_where_texts_are_not_kept_no_file_holds_a_question_or_an_answer(database: Database) -> None:
    facts = [OPENS, KEEPER, *ODD, NewFact("What is the code?", "zebra-4711-quartz")]
    with database.write() as connection:
        ledger = Ledger(connection, keep_text=False)
        numbers = write(ledger, *facts)
        ledger.add_questions(numbers[0], ["Any further wording of it?"])
        ledger.update(numbers[1], "Cy Dellwig", PLACE)
    written = bytes_of(database)
    database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    texts = ["Any further wording of it?", "Cy Dellwig"]
    texts += [text for fact in facts for text in (fact.question, fact.answer, *fact.paraphrases)]
    for text in texts:
        for form in (text, text.casefold(), unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)):
            for encoding in ("utf-8", "utf-16-le"):
                if len(form) > 2:  # two characters stand in any file by chance
                    assert form.encode(encoding) not in written + bytes_of(database)
    assert b"harbour.md" in written  # what is kept does stand there


def test_digests_differ_between_knowledge_bases_and_between_question_and_answer(tmp_path: Path) -> None:
    seen = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        create(tmp_path / name / "knowledge.sqlite", "fake", "f" * 16, 1, 4)
        database = Database(tmp_path / name / "knowledge.sqlite")
        with database.write() as connection:
            number = Ledger(connection, keep_text=False).write(NewFact("yes", "yes"), PLACE, FactState.MEMORISED, "")
            seen |= set(connection.execute("SELECT answer_digest FROM facts WHERE number = ?", (number,)))
            seen |= set(connection.execute("SELECT digest FROM fact_questions"))
            key = read_digests(connection).key
            assert (len(key), ensure_digests(connection).key) == (32, key)
        database.close()
    assert len(seen) == 4


def test_a_rolled_back_first_write_leaves_no_key_and_the_next_makes_one(database: Database) -> None:
    ledger = Ledger(database.connection, keep_text=True)
    with pytest.raises(FactError), database.write():
        write(ledger, KEEPER, KEEPER)
    with database.read() as connection:
        assert read_digests(connection).key == b""
        assert ledger.standing(KEEPER).verdict is Novelty.NEW
    with database.write():
        write(ledger, KEEPER)
    with database.read():
        assert ledger.standing(KEEPER).verdict is Novelty.UNCHANGED


@pytest.mark.parametrize("value", ["", "no hexadecimal", "00ff", None])
def test_a_damaged_or_missing_key_is_an_error_and_not_a_ledger_of_new_facts(kept: Ledger, value: str | None) -> None:
    write(kept, KEEPER)
    if value is None:
        kept._connection.execute("DELETE FROM parameters WHERE name = 'ledger_key'")
    else:
        kept._connection.execute("UPDATE parameters SET value = ? WHERE name = 'ledger_key'", (value,))
    with pytest.raises(FormatError, match="ledger_key"):
        kept.standing(KEEPER)


WORDINGS = ("a", "A?", "b", "c!", "d")


@given(
    st.lists(
        st.builds(
            NewFact,
            st.sampled_from(WORDINGS),
            st.sampled_from(["x", "y"]),
            st.lists(st.sampled_from(WORDINGS), max_size=3).map(tuple),
            id=st.sampled_from(["", "one", "two"]),
        ),
        max_size=8,
    )
)
def test_in_any_order_of_facts_no_question_ever_has_two_answers(facts: list[NewFact]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    for script in ("0001", "0002", "0003"):
        (path,) = (Path(create.__code__.co_filename).parent / "migrations").glob(f"{script}*.sql")
        connection.executescript(path.read_text("utf-8"))
    ledger = Ledger(connection, keep_text=True)
    for fact in facts:
        standing = ledger.standing(fact)
        if standing.verdict is Novelty.NEW:
            assert ledger.n_questions(ledger.write(fact, PLACE, FactState.MEMORISED, "")) == 1 + len(standing.extra)
        elif standing.verdict is Novelty.EXTENDED and standing.number is not None:
            assert ledger.add_questions(standing.number, standing.extra) == len(standing.extra) > 0
        if standing.verdict is Novelty.CONFLICT:
            assert standing.reason
        else:
            again = ledger.standing(fact)
            assert (again.verdict, again.fact_id) == (Novelty.UNCHANGED, standing.fact_id)
    held = connection.execute("SELECT count(*), count(DISTINCT digest) FROM fact_questions").fetchone()
    assert held[0] == held[1]
    connection.close()


def test_words_are_kept_where_they_stand_in_no_document_and_only_there(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for script in ("0001", "0002", "0003"):
        (path,) = (Path(create.__code__.co_filename).parent / "migrations").glob(f"{script}*.sql")
        connection.executescript(path.read_text("utf-8"))
    ledger = Ledger(connection, keep_text=True)
    fact = NewFact("Water boils at 100 °C.", "SUPPORTS", evidence="At sea level it boils at 100 °C.", kind=Kind.CLAIM)
    number = ledger.write(fact, Source("physics book"), FactState.MEMORISED, "")
    assert ledger.by_numbers([number])[number].evidence == fact.evidence
    ledger.set_source(number, Source("", "page:0-9", "page", 0, 9), fact.evidence)
    assert ledger.by_numbers([number])[number].evidence == ""
    ledger.set_source(number, Source("physics book"), fact.evidence)
    ledger.remove([number])
    assert not connection.execute("SELECT * FROM fact_evidence").fetchall()
    silent = Ledger(connection, keep_text=False)
    number = silent.write(fact, Source("physics book"), FactState.MEMORISED, "")
    assert silent.by_numbers([number])[number].evidence == ""
