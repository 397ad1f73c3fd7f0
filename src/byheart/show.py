"""Results as text and as JSON, for the command line.

Owns wording and layout. Computes nothing.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Sequence
from typing import Any

from byheart.reports import AddReport, RemoveReport, Status
from byheart.types import Answer, Citation, Hit, Passage, Route

QUOTE_CHARACTERS = 240
# Characters that move the cursor or turn the writing direction: file names and ids may hold them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def as_json(value: object, *, is_ascii: bool = False) -> str:
    """Return dataclasses, enums and tuples as one line of JSON, in ASCII alone if wanted."""
    return json.dumps(_plain(value), ensure_ascii=is_ascii)


def line(text: str) -> str:
    """Return text on one line, control characters written as escapes."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def answer(found: Answer, nearest: Sequence[Passage] = ()) -> str:
    """Return an answer for people: text, how it came about, sources; without a text, the nearest passages instead."""
    text = found.text if found.text is not None else "No short answer found in the documents."
    lines = ["\n".join(map(line, text.split("\n"))), ""]
    steps = ", ".join(f"{step.name} {step.seconds:.3f}" for step in found.seconds)
    sure = "" if found.confidence is None else f" · confidence {found.confidence:.2f}"
    lines.append(f"{found.route.value}{sure} · {found.total_seconds:.3f} s ({steps})")
    if found.disagreement is not None:
        told = found.disagreement
        taken = "memory's" if told.used is Route.MEMORY else "the passage's"
        said = f'memory, learned {told.learned_at}, says "{told.memory}", the passage "{told.passage}"'
        lines.append(line(f"{said}; {taken} is given"))
    if found.citations:
        lines += ["", "Sources"]
    for number, place in enumerate(found.citations, start=1):
        lines += citation(number, place)
    if nearest:
        lines += ["", "Nearest passages"]
    for passage in nearest:
        lines += [
            line(f"    {passage.id}{_sheet(passage.sheet)}  {passage.heading_path}"),
            f'    "{_shortened(passage.text)}"',
        ]
    return "\n".join(lines)


def hits(found: Sequence[tuple[Hit, Passage]]) -> str:
    """Return ranked passages for people."""
    if not found:
        return "No passage found."
    lines = []
    for rank, (hit, passage) in enumerate(found, start=1):
        lines.append(
            f"{rank}. {hit.score:.3f}  {line(hit.passage_id)}{_sheet(passage.sheet)}  "
            f"(BM25 {hit.lexical:.2f}, cosine {hit.dense:.3f})"
        )
        lines += [f"   {passage.heading_path}"] if passage.heading_path else []
        lines.append(f"   {_shortened(passage.text)}")
    return "\n".join(lines)


def added(report: AddReport) -> str:
    """Return what an add did, with the reason of every refusal."""
    counts = (
        f"{len(report.added)} added, {len(report.updated)} updated, {len(report.unchanged)} unchanged, "
        f"{len(report.removed)} removed, {len(report.refused)} refused"
    )
    lines = [
        f"{counts}; {report.passages_added} passages written, {report.passages_removed} deleted; epoch {report.epoch}"
    ]
    lines += [f"refused  {refusal.source}: {refusal.reason}" for refusal in report.refused]
    lines += [f"note     {notice}" for notice in report.notices]
    return "\n".join(map(line, lines))


def removed(report: RemoveReport) -> str:
    """Return what a removal did."""
    lines = [
        f"{len(report.removed)} documents removed, {report.passages_removed} passages deleted; epoch {report.epoch}"
    ]
    lines += [f"missing  {name}: no document has this name; `byheart documents` lists them" for name in report.missing]
    lines += [f"note     {notice}" for notice in report.notices]
    return "\n".join(map(line, lines))


def status(found: Status) -> str:
    """Return sizes and versions, one to a line."""
    rows = dataclasses.asdict(found)
    rows["bytes_on_disk"] = f"{found.bytes_on_disk:,}"
    return "\n".join(f"{name.replace('_', ' '):<16} {value}" for name, value in rows.items())


def citation(number: int, cited: Citation) -> list[str]:
    """Return a source for people: where it stands, and its words."""
    place = f"characters {cited.start}-{cited.end}{_sheet(cited.sheet)}"
    title = f"  {cited.title}" if cited.title and cited.title != cited.page else ""
    return [line(f"[{number}] {cited.page}, {place}{title}"), f'    "{_shortened(cited.text)}"']


def _sheet(sheet: int | None) -> str:
    return "" if sheet is None else f", page {sheet}"


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= QUOTE_CHARACTERS else flat[: QUOTE_CHARACTERS - 1] + "…"


def _plain(value: object) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
