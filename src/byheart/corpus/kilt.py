"""KILT records and byheart's own types: the one place where KILT's field names stand.

Owns reading and writing of KILT's JSONL. Scores nothing.
Source: Petroni et al. 2021, "KILT: a Benchmark for Knowledge Intensive Language Tasks", section 2.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.corpus.datasets import records
from byheart.errors import EvaluationError
from byheart.types import Answer

RecordId = int | str  # kept as in the file; the official scorer compares ids as text


@dataclass(frozen=True, slots=True)
class Provenance:
    """A place in the knowledge source.

    Attributes:
        page: KILT's `wikipedia_id`, as text; empty where the record has none.
        title: Title of the page.
        section: Section of the page.
        start_paragraph: First paragraph, None where unknown.
        end_paragraph: Last paragraph, None where unknown.
        start_character: First character in the first paragraph, None where unknown.
        end_character: One past the last character in the last paragraph, None where unknown.
    """

    page: str
    title: str = ""
    section: str = ""
    start_paragraph: int | None = None
    end_paragraph: int | None = None
    start_character: int | None = None
    end_character: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """One right answer with its evidence, or one guess with its ranked pages.

    Attributes:
        answer: The answer, None for an output that is evidence alone.
        provenance: One evidence set; in a guess, pages best first.
    """

    answer: str | None
    provenance: tuple[Provenance, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """A gold item or a guess.

    Attributes:
        id: As in the file, integer or text.
        input: The question or claim; empty where the record has none.
        outputs: All right answers and evidence sets, or the one guess; may be empty.
    """

    id: RecordId
    input: str
    outputs: tuple[Output, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers, each once, in order; empty for a gold item that has none."""
        return tuple(dict.fromkeys(output.answer for output in self.outputs if output.answer is not None))

    @property
    def evidence_sets(self) -> tuple[tuple[str, ...], ...]:
        """The pages of each output that has any, each page once, in order."""
        pages = (tuple(dict.fromkeys(place.page for place in output.provenance)) for output in self.outputs)
        return tuple(evidence for evidence in pages if evidence)


def read(path: Path) -> list[Record]:
    """Return the records in a KILT file, gold or guess, in order; EvaluationError names what cannot be read."""
    return [_record(fields, f"{path.name}, record {number}") for number, fields in enumerate(records(path), start=1)]


def write(path: Path, items: Iterable[Record]) -> None:
    """Write records as KILT's JSONL, fields without value left out."""
    lines = (json.dumps(_fields(item), ensure_ascii=False) + "\n" for item in items)
    path.write_text("".join(lines), encoding="utf-8")


def guess(record_id: RecordId, answer: Answer, titles: Mapping[str, str] | None = None) -> Record:
    """Return an answer as a KILT guess.

    Args:
        record_id: Id of the gold item.
        answer: What byheart answered; an abstention is written as the empty answer, which scores 0.
        titles: Titles by page, for pages that were retrieved but not cited.

    Returns:
        The guess: cited pages first, then the retrieved ones by rank, each once.
    """
    known = dict(titles or {}) | {citation.page: citation.title for citation in answer.citations}
    retrieved = (hit.passage_id.rpartition(":")[0] for hit in answer.hits)
    pages = dict.fromkeys([*(citation.page for citation in answer.citations), *retrieved])
    places = tuple(Provenance(page, known.get(page, "")) for page in pages)
    return Record(record_id, answer.question.text, (Output(answer.text or "", places),))


def _record(fields: Mapping[str, Any], place: str) -> Record:
    record_id = fields.get("id")
    if isinstance(record_id, bool) or not isinstance(record_id, int | str):
        raise EvaluationError(f"{place}: id must be a string or an integer, got {record_id!r}; is this a KILT file?")
    outputs = fields.get("output") or []
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise EvaluationError(f"{place}: output must be a list of objects, got {outputs!r:.80}; is this a KILT file?")
    return Record(record_id, str(fields.get("input") or ""), tuple(map(_output, outputs)))


def _output(fields: Mapping[str, Any]) -> Output:
    answer = fields.get("answer")
    places = tuple(map(_provenance, fields.get("provenance") or []))
    return Output(None if answer is None else str(answer), places)


def _provenance(fields: Mapping[str, Any]) -> Provenance:
    page = fields.get("wikipedia_id")
    return Provenance(
        page="" if page is None else str(page).strip(),
        title=str(fields.get("title") or ""),
        section=str(fields.get("section") or ""),
        start_paragraph=_integer(fields.get("start_paragraph_id")),
        end_paragraph=_integer(fields.get("end_paragraph_id")),
        start_character=_integer(fields.get("start_character")),
        end_character=_integer(fields.get("end_character")),
    )


def _integer(value: object) -> int | None:
    """Return a number that KILT files spell as 1 or as "1"; None where it is missing or no number."""
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,9}\s*", value) else None


def _fields(item: Record) -> dict[str, Any]:
    outputs = []
    for output in item.outputs:
        fields: dict[str, Any] = {} if output.answer is None else {"answer": output.answer}
        if output.provenance:
            fields["provenance"] = [_place(place) for place in output.provenance]
        outputs.append(fields)
    return {"id": item.id, "input": item.input, "output": outputs}


def _place(place: Provenance) -> dict[str, Any]:
    fields = {
        "wikipedia_id": place.page,
        "title": place.title,
        "section": place.section,
        "start_paragraph_id": place.start_paragraph,
        "end_paragraph_id": place.end_paragraph,
        "start_character": place.start_character,
        "end_character": place.end_character,
    }
    return {name: value for name, value in fields.items() if name == "wikipedia_id" or value not in (None, "")}
