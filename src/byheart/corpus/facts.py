"""Facts from JSONL and CSV, and what makes a fact well formed.

Owns the file formats, the fields' names, and the checks every fact passes before it is learned. A bad record is refused
alone; the others load. Knows no knowledge base: whether a fact is held already is the ledger's business.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from byheart.corpus.source import SURROGATES
from byheart.errors import FactError, InputError, QuestionError
from byheart.reports import Refusal
from byheart.text.question_keys import distinct_questions, fact_id
from byheart.types import Kind, NewFact, Question, Verdict

FIELDS = ("question", "answer", "paraphrases", "source", "evidence", "id", "kind")
ALIASES = {"article": "source"}
MAX_ID_CHARACTERS = 200
_BAR = re.compile(r"\s\|(?=\s)")  # between the paraphrases of a CSV cell

Record = Mapping[str, object]
Numbered = Iterator[tuple[int, Record | FactError]]


def read_facts(path: Path) -> tuple[list[NewFact], list[Refusal]]:
    """Return the facts in a file, checked, and the records that are none.

    Args:
        path: JSONL of `{question, answer, …}`, or CSV or TSV with these names in its first row.

    Returns:
        Facts in the file's order, and one refusal per bad record, with its line.

    Raises:
        FactError: The file is missing, of another kind, not UTF-8, without header or without a single record.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        seen = path.suffix or "no suffix"
        raise FactError(f"{path} is of a kind that facts are not read from, {seen}; read are {', '.join(_READERS)}")
    facts: list[NewFact] = []
    refusals: list[Refusal] = []
    for line, record in read(_text(path), path):
        try:
            if isinstance(record, FactError):
                raise record
            facts.append(checked_fact(_fact(record)))
        except InputError as error:
            refusals.append(Refusal(f"{path}, line {line}", str(error)))
    if not facts and not refusals:
        raise FactError(f"{path} holds no fact; write one record of question and answer per line")
    return facts, refusals


def checked_fact(new: NewFact) -> NewFact:
    """Return a fact as it may be learned: texts NFC and stripped, every question once, with an id.

    Args:
        new: A fact as a user gave it.

    Returns:
        The same fact, normalised.

    Raises:
        FactError: A field is missing, blank, of another type, or holds NUL or a lone surrogate; a claim's answer is no
            verdict; or the id is too long or holds control characters.
        QuestionError: The question or a paraphrase cannot be read.
    """
    kind = _kind(new.kind)
    question = _question("question", new.question, kind)
    if not isinstance(new.paraphrases, tuple | list):
        raise FactError(f"paraphrases must be a list of texts, got {new.paraphrases!r:.80}; put it in brackets")
    paraphrases = [_question("paraphrase", text, kind) for text in new.paraphrases]
    answer = _clean("answer", new.answer)
    if _is_blank(answer):
        raise FactError(f"the answer is missing or blank, got {new.answer!r:.80}; give a short answer")
    if kind is Kind.CLAIM and answer not in list(Verdict):
        raise FactError(f"a claim's answer must be {' or '.join(Verdict)}, got {answer!r:.80}; correct it")
    return NewFact(
        question,
        answer,
        distinct_questions([question, *paraphrases])[1:],
        _clean("source", new.source),
        _clean("evidence", new.evidence),
        _id(new.id) or fact_id(question, kind),
        kind,
    )


def _text(path: Path) -> str:
    if not path.is_file():
        raise FactError(f"{path} is no file; pass JSONL or CSV of question and answer")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FactError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from error
    except OSError as error:
        raise FactError(f"{path} cannot be read ({error.strerror}); check its permissions") from error


def _json_records(text: str, _path: Path) -> Numbered:
    for number, line in enumerate(text.split("\n"), start=1):  # U+2028 may stand inside a JSON string
        if line.strip():
            yield number, _json_record(line)


def _json_record(line: str) -> Record | FactError:
    try:
        record = json.loads(line, object_pairs_hook=_unambiguous)
    except FactError as error:
        return error
    except (ValueError, RecursionError) as error:
        return FactError(f"not valid JSON: {error}; each line must be one JSON object")
    if not isinstance(record, dict):
        return FactError(f'{type(record).__name__}, not an object; write {{"question": …, "answer": …}}')
    return record


def _unambiguous(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FactError(f"{twice!r:.80} stands there twice; leave one")
    return record


def _csv_records(text: str, path: Path) -> Numbered:
    yield from _table(text, path, ",")


def _tsv_records(text: str, path: Path) -> Numbered:
    yield from _table(text, path, "\t")


def _table(text: str, path: Path, delimiter: str) -> Numbered:
    rows = _rows(text, delimiter)
    line, header = next(rows, (1, FactError("it is empty; write a header and one fact per row")))
    if isinstance(header, FactError):
        raise FactError(f"{path}, line {line}: {header}")
    names = [name.strip() for name in header]
    if not {"question", "answer"} <= set(names) or len(set(names)) < len(names):
        raise FactError(
            f"{path}, line {line} is no header, it has {', '.join(map(repr, names))!s:.200}; "
            f"name the columns, each once: question, answer and any of {', '.join(FIELDS[2:])}"
        )
    for name in names:
        if unknown := _unknown(name):
            raise FactError(f"{path}, line {line}: {unknown}")
    for line, row in rows:
        yield line, row if isinstance(row, FactError) else _named(names, row)


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str] | FactError]]:
    """Yield the rows that are not blank, each with the line it begins in."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        first = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            last = f" up to line {rows.line_num}" if rows.line_num > first else ""
            yield first, FactError(f"not a row of CSV{last}: {error}; close and double the quotation marks in cells")
            continue
        if any(cell.strip() for cell in row):
            yield first, row


def _named(names: Sequence[str], row: Sequence[str]) -> Record | FactError:
    if any(cell.strip() for cell in row[len(names) :]):
        return FactError(f"{len(row)} cells, the header names {len(names)}; put cells with separators in quotes")
    record: dict[str, object] = {name: cell for name, cell in zip(names, row, strict=False) if cell.strip()}
    if "paraphrases" in record:
        parts = _BAR.split(f" {record['paraphrases']} ")
        record["paraphrases"] = [part for part in parts if part.strip()]
    return record


def _fact(record: Record) -> NewFact:
    """Return the fact in a record, its fields of the right types but not checked yet."""
    given = {name: value for name, value in record.items() if value is not None}
    for name in record:
        if unknown := _unknown(name):
            raise FactError(unknown)
    for alias, name in ALIASES.items():
        if alias in given and given.setdefault(name, given[alias]) != given[alias]:
            raise FactError(f"{alias} and {name} are two names of one field and differ; leave one of them")
    paraphrases = given.get("paraphrases", [])
    if not isinstance(paraphrases, list):
        raise FactError(f"paraphrases must be a list of texts, got {paraphrases!r:.80}; put it in brackets")
    identifier = given.get("id", "")
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    return NewFact(
        _string("question", given.get("question", "")),
        _string("answer", given.get("answer", "")),
        tuple(_string("paraphrase", text) for text in paraphrases),
        _string("source", given.get("source", "")),
        _string("evidence", given.get("evidence", "")),
        _string("id", identifier),
        _kind(given.get("kind", Kind.QUESTION)),
    )


def _unknown(name: str) -> str:
    """Return what is wrong with a field's name; empty if nothing is."""
    known = (*FIELDS, *ALIASES)
    if name in known:
        return ""
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}"
    return f"unknown field {name!r:.80}; {hint}"


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise FactError(f"{name} must be text, got {value!r:.80}; write it in quotation marks")
    return value


def _clean(name: str, value: str) -> str:
    text = _string(name, value)
    if "\x00" in text or SURROGATES.search(text):
        raise FactError(f"{name} holds NUL or a lone surrogate, {text!r:.80}; save the file as UTF-8 and correct it")
    return unicodedata.normalize("NFC", text).strip()


def _question(name: str, value: str, kind: Kind) -> str:
    text = _clean(name, value)
    if _is_blank(text):
        raise FactError(f"the {name} is missing or blank, got {value!r:.80}; write it as a user would ask")
    try:
        return Question.parse(text, kind).text
    except QuestionError as error:
        raise QuestionError(f"{name}: {error}") from error


def _is_blank(text: str) -> bool:
    return all(character.isspace() or unicodedata.category(character) in {"Cc", "Cf"} for character in text)


def _kind(value: object) -> Kind:
    if value not in list(Kind):
        raise FactError(f"kind must be {' or '.join(Kind)}, got {value!r:.80}; correct it")
    return Kind(str(value))


def _id(value: str) -> str:
    """Return an id; empty where none is given."""
    text = _clean("id", value)
    if value and _is_blank(text):
        raise FactError(f"the id is blank, {value!r:.80}; leave it out, or give one that can be seen")
    if len(text) > MAX_ID_CHARACTERS:
        raise FactError(
            f"the id has {len(text):,} characters, at most {MAX_ID_CHARACTERS} are kept; shorten {text!r:.80}"
        )
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in text):
        raise FactError(f"the id holds a control character, {text!r:.80}; take it out")
    return text


_READERS: dict[str, Callable[[str, Path], Numbered]] = {
    ".jsonl": _json_records,
    ".ndjson": _json_records,
    ".json-lines": _json_records,
    ".csv": _csv_records,
    ".tsv": _tsv_records,
}
