"""A gold file and a guess file of KILT, scored: per question first, means second.

Owns the pairing of items and the names under which the official scorer prints its means. Knows files only through
`corpus.kilt`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from byheart.corpus import kilt
from byheart.errors import EvaluationError
from byheart.evaluate.measures import Gold, Guess, Scores, precision_at, r_precision, recall_at, score, success_at


class Unit(enum.StrEnum):
    """What a ranking is made of: the official scorer's `rank_keys`."""

    PAGE = "page"
    SECTION = "section"
    PARAGRAPHS = "paragraphs"


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """One question of a gold file with the guess for it.

    Attributes:
        id: The item's id as text: 1 and "1" are one item, as for the official scorer.
        gold: What is right; evidence in the units that were asked for.
        guess: What was said; a ranking of such units.
        scores: What it is worth, by page.
    """

    id: str
    gold: Gold
    guess: Guess
    scores: Scores


def score_files(gold: Path, guesses: Path, unit: Unit = Unit.PAGE) -> tuple[ScoredItem, ...]:
    """Return every item of a gold file with its guess and scores.

    Args:
        gold: KILT file of right answers.
        guesses: KILT file with one guess per item, in any order.
        unit: What counts as found in retrieval measures; answers are always scored by page.

    Returns:
        Items in the gold file's order.

    Raises:
        EvaluationError: An id occurs twice in a file, or an item has no guess.
    """
    wanted, said = _by_id(gold), _by_id(guesses)
    missing = [key for key in wanted if key not in said]
    if missing:
        raise EvaluationError(f"{guesses.name} has no guess for {len(missing)} items, first {missing[0]!r}; add them")
    return tuple(_scored(key, record, said[key], unit) for key, record in wanted.items())


def means(items: Sequence[ScoredItem], ks: Sequence[int] = (1, 5, 10, 20)) -> dict[str, float]:
    """Return the means over items, named as the official scorer names them.

    Args:
        items: Scored items, at least one.
        ks: Depths of precision, recall and success rate.

    Returns:
        Mean by measure.

    Raises:
        EvaluationError: There is no item.
    """
    if not items:
        raise EvaluationError("there is no item to average over; check that the gold file is not empty")
    columns = {
        "accuracy": [item.scores.accuracy for item in items],
        "em": [item.scores.em for item in items],
        "f1": [item.scores.f1 for item in items],
        "rougel": [item.scores.rougel for item in items],
        "strict_em": [item.scores.strict_em for item in items],
        "Rprec": [r_precision(item.gold.evidence, item.guess.pages) for item in items],
    }
    for place, name in enumerate(("KILT-accuracy", "KILT-em", "KILT-f1", "KILT-rougel")):
        columns[name] = [item.scores.kilt[place] for item in items]
    for k in ks:
        columns[f"precision@{k}"] = [precision_at(k, item.gold.evidence, item.guess.pages) for item in items]
        columns[f"recall@{k}"] = [recall_at(k, item.gold.evidence, item.guess.pages) for item in items]
        columns[f"success_rate@{k}"] = [success_at(k, item.gold.evidence, item.guess.pages) for item in items]
    return {name: fsum(column) / len(items) for name, column in columns.items()}


def _by_id(path: Path) -> dict[str, kilt.Record]:
    found: dict[str, kilt.Record] = {}
    for record in kilt.read(path):
        key = str(record.id).strip()
        if key in found:
            raise EvaluationError(f"{path.name} holds the id {key!r} twice; ids must differ as text")
        found[key] = record
    return found


def _scored(key: str, record: kilt.Record, guess: kilt.Record, unit: Unit) -> ScoredItem:
    first = guess.outputs[0] if guess.outputs else kilt.Output(None)
    by_page = score(_gold(record, Unit.PAGE), Guess(first.answer, _names(first, Unit.PAGE)))
    return ScoredItem(key, _gold(record, unit), Guess(first.answer, _names(first, unit)), by_page)


def _gold(record: kilt.Record, unit: Unit) -> Gold:
    evidence = (frozenset(_names(output, unit)) for output in record.outputs)
    return Gold(record.answers, tuple(names for names in evidence if names))


def _names(output: kilt.Output, unit: Unit) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_name(place, unit) for place in output.provenance))


def _name(place: kilt.Provenance, unit: Unit) -> str:
    if unit is Unit.SECTION:
        return f"{place.page}+{place.section.strip()}"
    return place.page if unit is Unit.PAGE else f"{place.page}+{place.start_paragraph}+{place.end_paragraph}"
