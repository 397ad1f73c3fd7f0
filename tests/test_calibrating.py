"""Which questions count as new where the gate is calibrated, and what weighs memory meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from byheart.calibrating import Seen, _read, outcomes_of
from byheart.decisions import Evidence, Wishes
from byheart.gate.gate import Gate
from byheart.types import Answer, Kind, Question, Route


def evidence(candidates: int = 4) -> Evidence:
    return Evidence(0.9, 0.1, 2.0, 0.9, candidates, True, 0.9, 6)


def seen(learned: Sequence[bool], candidates: Sequence[int] | None = None) -> Seen:
    found = [evidence(n) for n in candidates or [4] * len(learned)]
    return Seen(found, [True] * len(learned), learned, Gate.default(), [])


def test_a_question_is_new_once_and_not_where_memory_learned_it_and_a_claim_is_no_question() -> None:
    asked = [
        Question("Is it open?"),
        Question("is it  OPEN"),
        Question("Is it open?", Kind.CLAIM),
        Question("Is it shut?"),
        Question("Is it new?"),
    ]
    found = outcomes_of(asked, seen([False, False, False, True, False]), 2)
    assert found.is_new == (True, False, True, False, True)
    assert (len(found.scores), len(found.right), found.choices) == (5, 5, 2)


def test_only_what_memory_had_a_candidate_for_counts() -> None:
    asked = [Question("a"), Question("b"), Question("a")]
    assert outcomes_of(asked, seen([False] * 3, [0, 4, 4]), 1).is_new == (True, False)
    assert outcomes_of(asked, seen([False] * 3, [0, 0, 0]), 1).scores == ()


@dataclass
class Weighing:
    """A gate that remembers what it was fitted on."""

    fitted_on: tuple[float, ...] = ()

    def calibrated(self, found: Sequence[Evidence], right: object) -> Weighing:
        return Weighing(tuple(one.probability for one in found))


@dataclass
class Asked:
    """A knowledge base that answers with the question, and keeps which gate weighed it."""

    weighed: dict[str, set[tuple[float, ...]]] = field(default_factory=dict)

    def answer_many(
        self, questions: Sequence[Question], _: Wishes, routes: Sequence[Route], gate: Weighing
    ) -> list[Answer]:
        for question in questions:
            self.weighed.setdefault(question.text, set()).add(gate.fitted_on)
        return [Answer(q, q.text, route, epoch=1) for q, route in zip(questions, routes, strict=True)]


def test_no_question_is_weighed_by_a_gate_that_was_fitted_on_it_and_answers_stay_with_their_questions() -> None:
    n, told = 71, list[tuple[int, int]]()
    questions = [Question(f"q{i}") for i in range(n)]
    found = [Evidence(i / 100, 0.1, 2.0, 0.9, 4, True, 0.9, 6) for i in range(n)]
    asking: Any = Asked()
    gate: Any = Weighing()
    gold = [[f"q{i}"] if i % 3 else ["other"] for i in range(n)]
    right = _read(
        asking, questions, gold, Seen(found, [True] * n, [False] * n, gate, []), lambda *it: told.append(it[:2])
    )
    assert right == {route: [i % 3 > 0 for i in range(n)] for route in (Route.BOTH, Route.RETRIEVAL)}
    for i in range(n):
        [fitted_on] = asking.weighed[f"q{i}"]
        assert i / 100 not in fitted_on
        assert len(fitted_on) in (35, 36)
    assert told[-1] == (n, n)
