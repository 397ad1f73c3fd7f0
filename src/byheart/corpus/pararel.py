"""ParaRel as statements with the object left open, and which of them memory is trained on.

Owns the split: a third of the patterns of every relation, and 6,000 facts, are for reporting only.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from byheart.corpus.datasets import records
from byheart.corpus.splits import share

OPEN = "___"
REPORTED_FACTS = 0.3


@dataclass(frozen=True, slots=True)
class Statement:
    """One ParaRel fact in several wordings.

    Attributes:
        id: Relation and subject; with one object only.
        relation: Wikidata property.
        subject: Label of the subject.
        answer: Label of the object.
        wordings: Statements in which the object is left open.
    """

    id: str
    relation: str
    subject: str
    answer: str
    wordings: tuple[str, ...]


def training_statements(data: Path) -> list[Statement]:
    """Return the facts that may be trained on, in the patterns that may be trained on."""
    return [s for s in _statements(data, _patterns(data, False)) if not is_reported(s.id)]


def reported_statements(data: Path) -> list[tuple[Statement, tuple[str, ...]]]:
    """Return the facts that are reported on, in training patterns, and beside each its wordings in the other patterns.

    Args:
        data: Folder of the data sets.

    Returns:
        Facts in order of their hash, so that any first part is a random sample.
    """
    asked = {s.id: s.wordings for s in _statements(data, _patterns(data, True))}
    found = [s for s in _statements(data, _patterns(data, False)) if is_reported(s.id) and s.id in asked]
    return sorted(((s, asked[s.id]) for s in found), key=lambda pair: share("order" + pair[0].id))


def is_reported(fact_id: str) -> bool:
    """Return whether a fact is for reporting only."""
    return share(fact_id) < REPORTED_FACTS


def _patterns(data: Path, reported: bool) -> dict[str, list[str]]:
    """Return the patterns of each relation; of every three, sorted by hash, the first is for reporting."""
    all_of: dict[str, list[str]] = defaultdict(list)
    for row in records(data / "pararel/patterns.jsonl.gz"):
        all_of[row["relation"]].append(" ".join(row["pattern"].split()).replace(" .", "."))
    return {
        relation: [
            p for i, p in enumerate(sorted(set(found), key=share)) if (i % 3 == 0) == reported and len(found) > 1
        ]
        for relation, found in all_of.items()
    }


def _statements(data: Path, patterns: dict[str, list[str]]) -> list[Statement]:
    objects: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in records(data / "pararel/trex_facts.jsonl.gz"):
        objects[row["relation"], row["sub_label"]].add(row["obj_label"])
    return [
        Statement(
            f"{relation}:{subject}",
            relation,
            subject,
            next(iter(found)),
            tuple(p.replace("[X]", subject).replace("[Y]", OPEN) for p in patterns[relation]),
        )
        for (relation, subject), found in objects.items()
        if len(found) == 1 and patterns.get(relation)
    ]
