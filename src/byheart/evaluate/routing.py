"""Systems that choose a route per request, compared on the same requests: each route is taken once for each of them.

Owns which systems there are, what is counted, and the curves over budgets and risks. Knows no data set. An answer
depends on its route alone, so that a system is a choice among answers already given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.calibrating import is_right
from byheart.decisions import Decision, Route, Wishes
from byheart.errors import ConfigError
from byheart.evaluate.calibration import calibration_error
from byheart.evaluate.datasets import Task
from byheart.evaluate.figures import Figure, Subject
from byheart.evaluate.intervals import binomial, mean, quantile, ratio
from byheart.evaluate.measures import Gold
from byheart.evaluate.session import Outcome, Session, ask, clock
from byheart.gate.labels import oracle_route
from byheart.types import Question

TAKEN = (Route.MEMORY, Route.BOTH, Route.RETRIEVAL)
STANDARD = "always-retrieve"
BUDGETS = tuple(round(0.1 * i, 1) for i in range(11))
RISKS = ((0.01, 0.95), (0.01, 0.9), (0.02, 0.95), (0.05, 0.95), (0.1, 0.95))  # and the confidence asked for
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
BINS = 10
SILENT = Outcome(None, None, (), retrievals=0, reads=0, prompt_tokens=0)


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a stream.

    Attributes:
        id: Unique among requests of its stream.
        kind: What sort it is.
        question: What is asked.
        gold: Accepted answers; none where memory has no right answer and what documents say is not scored.
    """

    id: str
    kind: str
    question: Question
    gold: tuple[str, ...]

    def is_right(self, outcome: Outcome) -> bool:
        """Return whether an answer is one of the accepted ones."""
        return is_right(outcome.text, self.gold)


@dataclass(frozen=True, slots=True)
class Told:
    """What each route answers to each request.

    Attributes:
        requests: The requests.
        of: Per route one outcome per request.
    """

    requests: Sequence[Request]
    of: Mapping[Route, Sequence[Outcome]]

    def right(self, route: Route) -> list[bool]:
        """Return whether a route's answers are right."""
        return [request.is_right(outcome) for request, outcome in zip(self.requests, self.of[route], strict=True)]

    def chosen(self, routes: Sequence[Route]) -> list[Outcome]:
        """Return the outcomes of one route per request; nothing is said where it is to abstain."""
        return [SILENT if route is Route.ABSTAIN else self.of[route][i] for i, route in enumerate(routes)]


@dataclass(frozen=True, slots=True)
class System:
    """A system's choices.

    Attributes:
        name: Its name.
        routes: One per request.
        outcomes: What it answered.
    """

    name: str
    routes: Sequence[Route]
    outcomes: Sequence[Outcome]


def told(session: Session, name: str, requests: Sequence[Request], routes: Sequence[Route] = TAKEN) -> Told:
    """Return what each route answers; resumable.

    Args:
        session: The run.
        name: Of the requests, part of the logs' names.
        requests: What is asked.
        routes: Routes to take.

    Returns:
        Outcomes per route.
    """
    tasks = [Task(request.id, request.question, Gold(request.gold), frozenset()) for request in requests]
    return Told(requests, {r: ask(session, f"{name}-{r.value}", tasks, route=r) for r in routes})


def decided(session: Session, requests: Sequence[Request]) -> list[Decision]:
    """Return the gate's decisions; ConfigError never, as nothing is wished for."""
    return _kept(session, requests, [Wishes()])[0][1]


def _kept(
    session: Session, requests: Sequence[Request], wishes: Sequence[Wishes]
) -> list[tuple[Wishes, list[Decision]]]:
    """Return the gate's decisions under those of the wishes that can be kept."""
    found = session.base.decide_many([request.question for request in requests], wishes)
    return [(wish, held) for wish, held in zip(wishes, found, strict=True) if not isinstance(held, ConfigError)]


def systems(found: Told, decisions: Mapping[str, Sequence[Decision]]) -> list[System]:
    """Return the systems to compare.

    Args:
        found: What the routes answer.
        decisions: Decisions per gate, by the system's name.

    Returns:
        Always retrieving, memory alone, recalled facts read always, the gates, and the oracle.
    """
    n = len(found.requests)
    right = {route: found.right(route) for route in TAKEN}
    oracle = [oracle_route({route: right[route][i] for route in TAKEN}) for i in range(n)]
    # Where no route is right the cheapest mistake is to say nothing; a baseline that must answer would retrieve.
    fixed = {STANDARD: [Route.RETRIEVAL] * n, "memory-only": [Route.MEMORY] * n, "both-only": [Route.BOTH] * n}
    chosen = {**fixed, **{name: [d.route for d in ways] for name, ways in decisions.items()}, "oracle": oracle}
    return [System(name, routes, found.chosen(routes)) for name, routes in chosen.items()]


def threshold_routes(
    scores: Sequence[float],
    right: Sequence[float],
    standard: Sequence[float],
    asked: Sequence[float],
    never: float = 2.0,
) -> tuple[float, list[Route]]:
    """Return the threshold of one number that is best on calibration requests, and the routes it gives others.

    Args:
        scores: Of the calibration requests, as the cosine to the nearest fact.
        right: What memory's answer is worth: 1 where it is right.
        standard: What retrieving is worth there.
        asked: Scores of the requests to route.
        never: A threshold that no score reaches.

    Returns:
        The threshold that is worth most, the lowest among equals; below it, everything is retrieved.
    """
    order = np.argsort(-np.asarray(scores), kind="stable")
    ordered = np.asarray(scores, float)[order]
    gain = np.cumsum(np.asarray(right, float)[order] - np.asarray(standard, float)[order])
    gain[:-1][ordered[:-1] == ordered[1:]] = -np.inf  # equal scores are answered together
    best = int(len(gain) - 1 - np.argmax(gain[::-1])) if len(gain) and gain.max() > 0 else -1
    threshold = float(ordered[best]) if best >= 0 else never
    return threshold, [Route.MEMORY if score >= threshold else Route.RETRIEVAL for score in asked]


def routed_figures(session: Session, split: str, requests: Sequence[Request], found: Sequence[System]) -> list[Figure]:
    """Return what each system gets right and pays, and its distance from always retrieving.

    Args:
        session: The run.
        split: Name of the requests.
        requests: The requests.
        found: The systems, always retrieving among them.

    Returns:
        Accuracy, coverage, answer precision, retrievals, reader calls, false answers from memory, and paired leads.
    """
    standard = next(system for system in found if system.name == STANDARD)
    base = _marks(requests, standard)
    figures = []
    for system in found:
        subject, marks = Subject(session, split, system.name), _marks(requests, system)
        figures += subject.means({"accuracy": marks.right, "coverage": marks.answered})
        if any(marks.counted):  # of a system that answers nothing there is no precision
            precision = ratio(marks.right, marks.counted, session.rng())
            figures.append(subject.figure("answer_precision", "share", precision))
        figures += subject.means({"false_memory_answers": marks.false_memory})
        figures += subject.means({"retrieval_calls": marks.calls, "reader_calls": marks.reads}, "per question")
        if system is not standard:
            figures.append(subject.lead("accuracy", (marks.right, base.right), STANDARD))
            saved = [b - m for b, m in zip(base.calls, marks.calls, strict=True)]
            figures.append(subject.figure("calls_saved", "share", mean(saved, session.rng())))
    return figures


def lead_figure(session: Session, split: str, requests: Sequence[Request], pair: tuple[System, System]) -> Figure:
    """Return by how much the first system is more accurate than the second, paired."""
    first, second = (_marks(requests, system).right for system in pair)
    return Subject(session, split, pair[0].name).lead("accuracy", (first, second), pair[1].name)


def with_facts_figures(session: Session, split: str, requests: Sequence[Request]) -> list[Figure]:
    """Return what always retrieving reaches in a knowledge base whose corpus holds the facts, too."""
    name, found = f"{STANDARD}+facts", told(session, f"{split}-facts-in-corpus", requests, [Route.RETRIEVAL])
    routes = [Route.RETRIEVAL] * len(requests)
    marks = _marks(requests, System(name, routes, found.of[Route.RETRIEVAL]))
    subject = Subject(session, split, name)
    precision = subject.figure("answer_precision", "share", ratio(marks.right, marks.counted, session.rng()))
    return [
        *subject.means({"accuracy": marks.right, "coverage": marks.answered}),
        precision,
        *subject.means({"retrieval_calls": marks.calls}, "per question"),
    ]


def recalled(text: str) -> Outcome:
    """Return the outcome of an answer that costs neither retrieval nor reader."""
    return Outcome(text, None, (), retrievals=0, reads=0, prompt_tokens=0)


def kind_figures(session: Session, split: str, requests: Sequence[Request], system: System) -> list[Figure]:
    """Return how a system treats each kind of request: accuracy, and the share it answers from memory."""
    figures = []
    for kind in dict.fromkeys(request.kind for request in requests):
        places = [i for i, request in enumerate(requests) if request.kind == kind]
        subject = Subject(session, f"{split}: {kind}", system.name)
        said = [float(system.outcomes[i].text is not None and not system.outcomes[i].retrievals) for i in places]
        right = [float(requests[i].is_right(system.outcomes[i])) for i in places]
        figures += subject.means({"accuracy": right, "answered_from_memory": said})
    return figures


def budget_figures(session: Session, split: str, found: Told, name: str) -> list[Figure]:
    """Return accuracy and retrievals at each budget: the curve of one gate."""
    figures = []
    for wish, decisions in _kept(session, found.requests, [Wishes(budget=budget) for budget in BUDGETS]):
        budget, routes = wish.budget or 0.0, [decision.route for decision in decisions]
        marks = _marks(found.requests, System(name, routes, found.chosen(routes)))
        subject = Subject(session, split, name)
        figures += subject.means({f"accuracy@budget{budget:g}": marks.right})
        figures += subject.means({f"retrieval_calls@budget{budget:g}": marks.calls}, "per question")
    return figures


def risk_figures(session: Session, split: str, found: Told, name: str) -> list[Figure]:
    """Return the risk observed at each risk asked for, exact binomial; a risk that cannot be promised is left out."""
    figures = []
    right = found.right(Route.MEMORY)
    for wish, decisions in _kept(session, found.requests, [Wishes(*asked) for asked in RISKS]):
        asked_for = f"@{wish.risk:g}" + ("" if wish.confidence == Wishes().confidence else f",conf{wish.confidence:g}")
        routes = [decision.route for decision in decisions]
        subject, flags = Subject(session, split, name), [float(route is Route.MEMORY) for route in routes]
        wrong = [f * (not ok) for f, ok in zip(flags, right, strict=True)]
        marks = _marks(found.requests, System(name, routes, found.chosen(routes)))
        figures += subject.means(
            {
                f"coverage_at_risk{asked_for}": flags,
                f"false_memory_answers_at_risk{asked_for}": wrong,
            }
        )
        figures += subject.means({f"retrieval_calls_at_risk{asked_for}": marks.calls}, "per question")
        if any(marks.counted):
            precision = ratio(marks.right, marks.counted, session.rng())
            figures.append(subject.figure(f"answer_precision_at_risk{asked_for}", "share", precision))
        if any(flags):
            seen = binomial(int(sum(wrong)), int(sum(flags)))
            figures.append(subject.figure(f"risk_observed{asked_for}", "share", seen))
    return figures


def reliability_figures(session: Session, split: str, found: Told, decisions: Sequence[Decision]) -> list[Figure]:
    """Return how well the gate's chances hold: calibration error and a reliability diagram per route."""
    figures = []
    for route in TAKEN:
        rows = [
            (next(chance.probability for chance in decision.chances if chance.route is route), right)
            for decision, right, outcome in zip(decisions, found.right(route), found.of[route], strict=True)
            if decision.chances and outcome.text is not None
        ]
        if not rows:
            continue
        chances, right = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], float)
        subject = Subject(session, split, f"route-{route.value}")
        figures.append(subject.figure("ece", "share", calibration_error(chances, right, session.rng())))
        bins = np.minimum((chances * BINS).astype(int), BINS - 1)
        for place in np.unique(bins):
            held = right[bins == place]
            figures.append(
                subject.figure(f"reliability@{(place + 0.5) / BINS:.2f}", "share", binomial(int(held.sum()), len(held)))
            )
    return figures


def latency_figures(
    session: Session, split: str, requests: Sequence[Request], routes: Mapping[str, Route | None]
) -> list[Figure]:
    """Return quantiles of seconds per request, asked alone on a warm system, per way to ask."""
    tasks = [Task(request.id, request.question, Gold(request.gold), frozenset()) for request in requests]
    figures = []
    for name, route in routes.items():
        seconds = np.array([timing.seconds for timing in clock(session, tasks, route=route)])
        subject = Subject(session, split, name)
        figures += [
            subject.figure(f"seconds_p{round(100 * q)}", "seconds", quantile(seconds, q, session.rng()))
            for q in QUANTILES
        ]
    return figures


@dataclass(frozen=True, slots=True)
class _Marks:
    right: list[float]
    answered: list[float]
    counted: list[float]
    false_memory: list[float]
    calls: list[float]
    reads: list[float]


def _marks(requests: Sequence[Request], system: System) -> _Marks:
    """Return numbers per request: what has no gold answer counts among the answered where memory gave the answer."""
    rows = list(zip(requests, system.outcomes, strict=True))
    right = [float(request.is_right(outcome)) for request, outcome in rows]
    answered = [float(outcome.text is not None) for _, outcome in rows]
    recalled = [outcome.text is not None and not outcome.retrievals for _, outcome in rows]
    from_memory = [route is Route.MEMORY and said for route, said in zip(system.routes, recalled, strict=True)]
    return _Marks(
        right=right,
        answered=answered,
        counted=[
            float(said and (bool(request.gold) or known))
            for (request, _), said, known in zip(rows, answered, recalled, strict=True)
        ],
        false_memory=[float(said and not ok) for said, ok in zip(from_memory, right, strict=True)],
        calls=[float(outcome.retrievals) for _, outcome in rows],
        reads=[float(outcome.reads) for _, outcome in rows],
    )
