"""Which way a knowledge base's questions go: its gate, its calibration set, and what was asked for.

Owns the rows of both in the table `parameters`, the evidence of the question's terms, and how a risk and a budget
become a threshold and a price. Part of the composition root.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from byheart.decisions import CONFIDENCE, Decision, Evidence, RiskBound, Wishes
from byheart.errors import ConfigError, FormatError
from byheart.gate.evidence import evidence_of
from byheart.gate.gate import Gate, gains, price_for_budget
from byheart.gate.risk import Outcomes, lowest_risk, promised
from byheart.grounds import has_grounds
from byheart.retrieval.analyzer import analyze
from byheart.retrieval.terms import TermTable
from byheart.types import Question, Recall

GATE, CALIBRATION = "gate", "gate_calibration"
BEFORE = "before_training"  # what was in use before trained parts that are not calibrated yet


@dataclass(frozen=True, slots=True)
class Calibration:
    """Held-out questions as the gate saw them.

    Attributes:
        outcomes: How memory did on them.
        gains: How much likelier retrieval was to be right than the best route without it, of all questions.
    """

    outcomes: Outcomes = field(default_factory=Outcomes)
    gains: tuple[float, ...] = ()


class GateRouter:
    """The gate of one knowledge base, inside an open transaction."""

    def __init__(self, connection: sqlite3.Connection, wishes: Wishes, gate: Gate | None = None) -> None:
        """Read the gate, and turn what is wished into a threshold and a price.

        Args:
            connection: Connection to the database.
            wishes: Risk and budget.
            gate: The gate, None for the one that is stored.

        Raises:
            ConfigError: A risk or a budget is wished for that the calibration set cannot promise.
            FormatError: The stored gate is of another format.
        """
        self._terms = TermTable(connection)
        self.gate = gate or read_gate(connection)
        is_wished = wishes.risk is not None or wishes.budget is not None  # else a damaged one is in nobody's way
        held = read_calibration(connection) if is_wished else Calibration()
        self.bound = None if wishes.risk is None else _bound(held, wishes)
        self.price = self.gate.price if wishes.budget is None else _price(held, wishes.budget)

    def route(self, questions: Sequence[Question], recalls: Sequence[Recall]) -> list[Decision]:
        """Return one decision per question, from what memory says and from the question's terms."""
        return self.decide(self.evidence(questions, recalls))

    def decide(self, evidence: Sequence[Evidence]) -> list[Decision]:
        """Return one decision per question, from evidence alone."""
        return self.gate.decide(evidence, self.bound, self.price)

    def evidence(self, questions: Sequence[Question], recalls: Sequence[Recall]) -> list[Evidence]:
        """Return the evidence of each question."""
        found = [analyze(question.text) for question in questions]
        held = self._terms.lookup({term for terms in found for term in terms})
        n = self._terms.n_passages()
        return [
            evidence_of(recall, has_grounds(recall.fact), _known_share(terms, held, n), len(set(terms)))
            for terms, recall in zip(found, recalls, strict=True)
        ]


def read_gate(connection: sqlite3.Connection) -> Gate:
    """Return the fitted gate, or the default one where none was fitted."""
    row = connection.execute("SELECT value FROM parameters WHERE name = ?", (GATE,)).fetchone()
    return Gate.default() if row is None else Gate.from_json(row[0])


def read_calibration(connection: sqlite3.Connection) -> Calibration:
    """Return the calibration set, an empty one where there was none.

    Args:
        connection: Connection to the database.

    Returns:
        The set.

    Raises:
        FormatError: The row is damaged: nothing is promised of it.
    """
    row = connection.execute("SELECT value FROM parameters WHERE name = ?", (CALIBRATION,)).fetchone()
    if row is None:
        return Calibration()
    try:
        held = json.loads(row[0])
        scores, right, new, gained = (tuple(held[name]) for name in ("scores", "right", "is_new", "gains"))
        if not len(scores) == len(right) == len(new) or {*right, *new} - {True, False}:
            raise ValueError(f"{len(scores)} scores for {len(right)} outcomes")
        if not all(map(math.isfinite, (*scores, *gained))) or type(held["choices"]) is not int or held["choices"] < 1:
            raise ValueError("a number is not finite, or there was nothing to choose from")
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"the calibration cannot be read ({error}); make it anew with: byheart calibrate") from error
    return Calibration(Outcomes(scores, right, new, held["choices"]), gained)


def write_gate(
    connection: sqlite3.Connection, gate: Gate, found: Sequence[Evidence], outcomes: Outcomes
) -> float | None:
    """Write a gate and the calibration set it was fitted on, inside the open write transaction.

    Args:
        connection: Connection to the database.
        gate: The gate.
        found: Evidence of the calibration questions.
        outcomes: How memory did on those for which it had an answer.

    Returns:
        The lowest risk that can be promised now, None for none.
    """
    held = {**asdict(outcomes), "gains": gains(gate, found)}
    rows = [(GATE, gate.to_json()), (CALIBRATION, json.dumps(held))]
    connection.executemany("INSERT OR REPLACE INTO parameters VALUES (?, ?)", rows)
    connection.execute("DELETE FROM parameters WHERE name = ?", (BEFORE,))
    return lowest_risk(outcomes, 1 - CONFIDENCE)


def parameters(connection: sqlite3.Connection, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return parameters by name, ascending, those that there are."""
    query = f"SELECT name, value FROM parameters WHERE name IN ({','.join('?' * len(names))}) ORDER BY name"
    return connection.execute(query, names).fetchall()


def _bound(held: Calibration, wishes: Wishes) -> RiskBound:
    if not held.outcomes.scores:
        raise ConfigError("a risk can be promised after calibration only; run: byheart calibrate KB --questions FILE")
    delta = 1 - wishes.confidence
    try:
        return promised(held.outcomes, float(wishes.risk or 0.0), delta)
    except ConfigError as error:
        lowest = lowest_risk(held.outcomes, delta)
        shared = held.outcomes.choices
        why = "" if shared == 1 else f"; the questions also chose between {shared} memories, which share the doubt"
        is_higher = lowest is not None and lowest > (wishes.risk or 0.0)
        raise ConfigError(f"{error}{f', such as {lowest:g}' if is_higher else ''}{why}") from error


def _price(held: Calibration, budget: float) -> float:
    if not held.gains:
        raise ConfigError("a budget can be kept after calibration only; run: byheart calibrate KB --questions FILE")
    return price_for_budget(held.gains, budget)


def _known_share(terms: Sequence[str], held: dict[str, tuple[int, int]], n_passages: int) -> float:
    """Return how much of a question's terms, by inverse document frequency, the corpus holds; 0 without terms."""
    weights = {term: math.log(1 + n_passages / (1 + held.get(term, (0, 0))[1])) for term in terms}
    whole = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in held) / whole if whole else 0.0
