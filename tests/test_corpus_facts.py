"""Facts from JSONL and CSV: what loads, what is refused with its line, and what makes a fact well formed."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.corpus.facts import checked_fact, read_facts
from byheart.errors import FactError, InputError, QuestionError
from byheart.text.question_keys import distinct_questions, fact_id, question_key
from byheart.types import MAX_QUESTION_CHARACTERS, Kind, NewFact

HARBOUR = {"question": "When does the harbour open?", "answer": "At 6:00"}


def jsonl(folder: Path, *records: object, name: str = "facts.jsonl") -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    (folder / name).write_bytes("\n".join(lines).encode())
    return folder / name


def table(folder: Path, text: str, name: str = "facts.csv") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


def reason(folder: Path, record: object) -> str:
    """Return why a record between two good ones is refused; the good ones load."""
    path = jsonl(folder, HARBOUR, record, HARBOUR)
    facts, refusals = read_facts(path)
    assert len(facts) == 2
    assert [refusal.source for refusal in refusals] == [f"{path}, line 2"]
    return refusals[0].reason


def test_a_record_with_every_field_loads_whole(tmp_path):
    path = jsonl(
        tmp_path,
        HARBOUR
        | {
            "paraphrases": ["Opening time of the harbour?", "When can ships come in?"],
            "source": "harbour.md",
            "evidence": "It opens at 6:00.",
            "id": "h-1",
            "kind": "question",
        },
    )
    paraphrases = ("Opening time of the harbour?", "When can ships come in?")
    assert read_facts(path) == (
        [NewFact(HARBOUR["question"], "At 6:00", paraphrases, "harbour.md", "It opens at 6:00.", "h-1")],
        [],
    )


def test_csv_and_tsv_and_jsonl_give_the_same_facts(tmp_path):
    header = ["question", "answer", "paraphrases", "article", "id"]
    row = ["When does it open?", 'At "6", sharp', "Opening time? | From when on?", "harbour.md", "7"]
    quoted = [f'"{cell}"' for cell in (text.replace('"', '""') for text in row)]
    paths = [
        table(tmp_path, f"{','.join(header)}\r\n{','.join(quoted)}\r\n"),
        table(tmp_path, "\t".join(header) + "\n" + "\t".join(quoted), "facts.TSV"),
        jsonl(tmp_path, dict(zip(header, row, strict=True)) | {"paraphrases": row[2].split(" | "), "id": 7}),
    ]
    loaded = [read_facts(path) for path in paths]
    expected = NewFact(row[0], row[1], ("Opening time?", "From when on?"), "harbour.md", "", "7")
    assert loaded == [([expected], [])] * 3


def test_a_support_faq_with_articles_loads(tmp_path):
    facts, refusals = read_facts(jsonl(tmp_path, {"id": "faq-001", **HARBOUR, "article": "help/open", "evidence": "6"}))
    assert (facts[0].source, facts[0].id, refusals) == ("help/open", "faq-001", [])


def test_a_claim_is_answered_by_a_verdict_only(tmp_path):
    claim = {"question": "The harbour is open.", "kind": "claim"}
    facts, _ = read_facts(jsonl(tmp_path, claim | {"answer": "REFUTES"}))
    assert (facts[0].kind, facts[0].answer) == (Kind.CLAIM, "REFUTES")
    assert "SUPPORTS or REFUTES, got 'yes'" in reason(tmp_path, claim | {"answer": "yes"})


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["a"]', "list, not an object"),
        ('{"question": "Who?", "answer": "A", "answer": "B"}', "'answer' stands there twice"),
        ({"question": "Who?"}, "answer is missing or blank"),
        ({"answer": "A"}, "question is missing or blank"),
        ({"question": " \t", "answer": "A"}, "question is missing or blank"),
        ({"question": "\u200b\u200d", "answer": "A"}, "question is missing or blank"),
        ({"question": "Who?", "answer": "\u200b "}, "answer is missing or blank"),
        ({"question": "Who?", "answer": None}, "answer is missing or blank"),
        ({"question": "Who?", "answer": 42}, "answer must be text, got 42; write it in quotation marks"),
        ({"question": ["Who?"], "answer": "A"}, "question must be text"),
        (HARBOUR | {"paraphrases": "When?"}, "paraphrases must be a list of texts"),
        (HARBOUR | {"paraphrases": ["When?", 3]}, "paraphrase must be text, got 3"),
        (HARBOUR | {"paraphrases": [""]}, "paraphrase is missing or blank"),
        (HARBOUR | {"paraphrase": ["When?"]}, "unknown field 'paraphrase'; did you mean paraphrases?"),
        (HARBOUR | {"Answer": "x"}, "unknown field 'Answer'; did you mean answer?"),
        (HARBOUR | {"zzz": "x"}, "unknown field 'zzz'; known are question, answer"),
        (HARBOUR | {"source": "a.md", "article": "b.md"}, "article and source are two names of one field"),
        (HARBOUR | {"kind": "fact"}, "kind must be question or claim, got 'fact'"),
        (HARBOUR | {"id": True}, "id must be text"),
        (HARBOUR | {"id": "  "}, "the id is blank"),
        (HARBOUR | {"id": "x" * 201}, "the id has 201 characters"),
        (HARBOUR | {"id": "a\nb"}, "the id holds a control character"),
        ('{"question": "Who?", "answer": "a\\u0000b"}', "answer holds NUL or a lone surrogate"),
        ('{"question": "Who\\ud800?", "answer": "A"}', "question holds NUL or a lone surrogate"),
        ('{"question": "Who?", "answer": "A", "source": "\\udfff"}', "source holds NUL or a lone surrogate"),
        ({"question": "x" * (MAX_QUESTION_CHARACTERS + 1), "answer": "A"}, "question: the question has 4,001"),
    ],
)
def test_a_bad_record_is_refused_with_its_line_and_the_rest_loads(tmp_path, record, words):
    found = reason(tmp_path, record)
    assert words in found
    assert len(found) < 400
    found.encode()  # can be printed, whatever the record held


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("facts.jsonl", b"", "holds no fact"),
        ("facts.jsonl", b"\xef\xbb\xbf \n\n", "holds no fact"),
        ("facts.csv", b"", "empty"),
        ("facts.csv", b"\n,,\n", "empty"),
        ("facts.csv", b"question,answer\n", "holds no fact"),
        ("facts.csv", b"When does it open?,At 6:00\n", "line 1 is no header"),
        ("facts.csv", b"question;answer\nWhen?;6\n", "line 1 is no header"),
        ("facts.csv", b"question,answer,answer\nWhen?,6,7\n", "each once"),
        ("facts.csv", b"question,answer,sourse\nWhen?,6,a\n", "unknown field 'sourse'; did you mean source?"),
        ("facts.csv", b'question,"answer\nWhen?,6\n', "not a row of CSV"),
        ("facts.jsonl", '{"question": "Où?"}'.encode("latin-1"), "is not UTF-8"),
        ("facts.csv", "question,answer".encode("utf-16"), "is not UTF-8"),
        ("facts.json", b"{}", "of a kind that facts are not read from, .json"),
        ("facts", b"{}", "no suffix"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_an_error(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FactError, match=re.escape(words)):
        read_facts(tmp_path / name)


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name in ("gone.jsonl", "folder.csv", "nul\x00.csv"):
        with pytest.raises(FactError, match="is no file"):
            read_facts(tmp_path / name)


def test_a_file_of_bad_records_only_is_no_error_but_refusals(tmp_path):
    assert [len(part) for part in read_facts(jsonl(tmp_path, "{", "}"))] == [0, 2]


def test_rows_of_csv_are_refused_by_the_line_they_begin_in(tmp_path):
    path = table(
        tmp_path,
        "\ufeffquestion,answer,paraphrases,source\n"
        '"When does\nit open?",At 6:00\n'
        "\n"
        ",,,\n"
        '"one"two,x\n'
        "Who?,A,,b.md,more\n"
        "Where?,Here,,,\n"
        "No answer?\n"
        '"How?\n,B\nWho?,C',
    )
    facts, refusals = read_facts(path)
    assert [(fact.question, fact.answer) for fact in facts] == [("When does\nit open?", "At 6:00"), ("Where?", "Here")]
    assert [refusal.source.removeprefix(f"{path}, ") for refusal in refusals] == [
        "line 6",
        "line 7",
        "line 9",
        "line 10",
    ]
    for words, refusal in zip(["not a row", "5 cells", "answer is missing", "up to line 12"], refusals, strict=True):
        assert words in refusal.reason


def test_a_cell_too_large_for_csv_is_refused_and_the_rest_loads(tmp_path):
    facts, refusals = read_facts(table(tmp_path, f"question,answer\nWho?,{'x' * 200_000}\nWhere?,Here\n"))
    assert [fact.question for fact in facts] == ["Where?"]
    assert "field larger than field limit" in refusals[0].reason


def test_paraphrases_are_split_at_a_bar_between_spaces(tmp_path):
    facts, _ = read_facts(table(tmp_path, "question,answer,paraphrases\nq,a,b|c | d  |  | e |\n"))
    assert facts[0].paraphrases == ("b|c", "d", "e")


def test_lines_end_at_line_feeds_only(tmp_path):
    facts, _ = read_facts(jsonl(tmp_path, '{"question": "Who\u2028came?", "answer": "Ada"}\r', HARBOUR))
    assert [fact.question for fact in facts] == ["Who\u2028came?", HARBOUR["question"]]


@pytest.mark.parametrize(
    "text",
    [
        "cafe\u0301 à Zürich",
        "👩\u200d👩\u200d👧 family",
        "متى يفتح الميناء؟",
        "港は何時に開きますか。",
        "هل \u200fنعم",
        "각",
    ],
)
def test_texts_of_every_script_come_back_as_nfc(tmp_path, text):
    (fact,), refusals = read_facts(jsonl(tmp_path, {"question": f" {text} ", "answer": f"{text}\n", "source": text}))
    composed = unicodedata.normalize("NFC", text)
    assert (fact.question, fact.answer, fact.source, refusals) == (composed, composed, composed, [])


def test_a_question_in_two_forms_is_one_and_keeps_the_first_wording(tmp_path):
    again = ["WHEN does the harbour  open", "When  can I land?", "When can I land", "When can we land?"]
    (fact,), _ = read_facts(jsonl(tmp_path, HARBOUR | {"paraphrases": again}))
    assert fact.paraphrases == ("When  can I land?", "When can we land?")


def test_an_id_is_made_from_kind_and_question_where_none_is_given(tmp_path):
    facts, _ = read_facts(jsonl(tmp_path, HARBOUR, HARBOUR | {"id": ""}, HARBOUR | {"id": None}))
    ids = {fact.id for fact in facts}
    assert ids == {fact_id(HARBOUR["question"], Kind.QUESTION)}
    assert re.fullmatch(r"fact-[0-9a-f]{16}", ids.pop())


@pytest.mark.parametrize(
    ("left", "right", "are_one"),
    [
        ("Who came?", "who  CAME", True),
        ("Ｗｈｏ came ?!", "Who came.", True),  # noqa: RUF001
        ("Cafe\u0301 open?", "Café open?", True),
        ("Cafe open?", "Café open?", False),
        ("Straße?", "STRASSE?", True),
        ("متى يفتح؟", "متى يفتح", True),
        ("何時。", "何時", True),
        ("\u200fمتى", "متى", True),
        ("👩\u200d👧", "👩👧", False),
        ("???", "!!!", False),
        ("Is it 3.5?", "Is it 35?", False),
        ("Is he in?", "Is he not in?", False),
    ],
)
def test_questions_are_one_that_differ_in_form_only(left, right, are_one):
    assert (question_key(left) == question_key(right)) is are_one
    assert (fact_id(left, Kind.QUESTION) == fact_id(right, Kind.QUESTION)) is are_one
    assert fact_id(left, Kind.QUESTION) != fact_id(left, Kind.CLAIM)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=8))
def test_distinct_questions_are_all_questions_once_in_order(texts):
    kept = distinct_questions(texts)
    assert len({question_key(text) for text in kept}) == len(kept)
    assert {question_key(text) for text in kept} == {question_key(text) for text in texts}
    firsts = [next(text for text in texts if question_key(text) == question_key(wanted)) for wanted in kept]
    assert list(kept) == firsts


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=3), TEXTS, TEXTS)
def test_a_checked_fact_is_checked_already(question, answer, paraphrases, source, identifier):
    try:
        fact = checked_fact(NewFact(question, answer, tuple(paraphrases), source, source, identifier))
    except InputError:
        return
    assert checked_fact(fact) == fact
    assert fact.id


@pytest.mark.parametrize(
    "fact",
    [
        NewFact(3, "A"),  # type: ignore[arg-type]
        NewFact("Who?", None),  # type: ignore[arg-type]
        NewFact("Who?", "A", "When?"),  # type: ignore[arg-type]
        NewFact("Who?", "A", None),  # type: ignore[arg-type]
        NewFact("Who?", "A", (None,)),  # type: ignore[arg-type]
        NewFact("Who?", "A", id=5),  # type: ignore[arg-type]
        NewFact("Who?", "A", kind="answer"),  # type: ignore[arg-type]
    ],
)
def test_a_fact_built_with_a_wrong_type_is_an_error_of_ours(fact):
    with pytest.raises(FactError):
        checked_fact(fact)


def test_a_paraphrase_too_long_is_a_question_error():
    with pytest.raises(QuestionError, match="paraphrase: the question has"):
        checked_fact(NewFact("Who?", "A", ("x" * (MAX_QUESTION_CHARACTERS + 1),)))


@given(st.binary(max_size=60), st.sampled_from(["f.jsonl", "f.csv", "f.tsv"]))
def test_any_bytes_give_facts_or_an_error_of_ours(tmp_path_factory, content, name):
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(b"question,answer\n" + content if name == "f.csv" else content)
    try:
        facts, refusals = read_facts(path)
    except FactError:
        return
    assert facts or refusals
