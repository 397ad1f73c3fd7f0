"""Gate, parts trained alone and joint training against the baselines, on one stream of requests.

Owns the order: parts alone first, then joint training, each calibrated on the same requests; and which figures each
gets. Knows no data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from byheart.calibrating import is_right
from byheart.evaluate import routing
from byheart.evaluate.cosine_cache import SYSTEM as CACHE
from byheart.evaluate.cosine_cache import cached
from byheart.evaluate.datasets import Task
from byheart.evaluate.figures import Figure
from byheart.evaluate.measures import Gold
from byheart.evaluate.routing import STANDARD, TAKEN, Request, System, Told
from byheart.evaluate.session import Session, ask
from byheart.types import NewFact, Route

ALONE, JOINT, CAREFUL = "trained-alone", "byheart", f"{CACHE}, careful"
TIMED = 100


@dataclass(frozen=True, slots=True)
class Compared:
    """What systems are compared on.

    Attributes:
        facts: What memory holds, for the cosine cache.
        trained: Requests that joint training reads.
        calibration: Requests that gates and thresholds are calibrated on.
        requests: Requests that are reported on.
        settings: Settings of joint training.
    """

    facts: Sequence[NewFact]
    trained: Sequence[Request]
    calibration: Sequence[Request]
    requests: Sequence[Request]
    settings: Mapping[str, object] = field(default_factory=dict)


def compare(session: Session, split: str, given: Compared) -> list[Figure]:
    """Return the figures of all systems.

    Args:
        session: The run; its knowledge base has the documents and the facts, and was never calibrated.
        split: Name of the requests.
        given: What they are compared on.

    Returns:
        Accuracy, cost, leads, budget curve, risks, calibration and seconds.
    """
    base = session.base
    _calibrate(session, given)
    before = routing.told(session, f"{split}-alone", given.requests)
    alone = routing.decided(session, given.requests)
    found = [*routing.systems(before, {ALONE: alone}), *_caches(session, split, given, before)]
    found.append(_closed(session, split, given.requests))
    for key, value in given.settings.items():
        base.configure(key, value)
    session.train(base, [r.question for r in given.trained], [r.gold for r in given.trained], session.progress)
    _calibrate(session, given)
    after = routing.told(session, f"{split}-joint", given.requests)
    joint = routing.decided(session, given.requests)
    found.append(System(JOINT, [d.route for d in joint], after.chosen([d.route for d in joint])))
    adapted = [Route.RETRIEVAL] * len(given.requests)
    found.append(System(f"{STANDARD}, adapted", adapted, after.chosen(adapted)))
    figures = routing.routed_figures(session, split, given.requests, found)
    figures.append(routing.lead_figure(session, split, given.requests, (found[-2], _named(found, ALONE))))
    figures += routing.kind_figures(session, split, given.requests, found[-2])
    figures += routing.budget_figures(session, split, after, JOINT)
    figures += routing.risk_figures(session, split, after, JOINT)
    figures += routing.reliability_figures(session, split, after, joint)
    ways = {JOINT: None, **{f"route-{route.value}": route for route in TAKEN}}
    return [*figures, *routing.latency_figures(session, split, given.requests[:TIMED], ways)]


def _calibrate(session: Session, given: Compared) -> None:
    session.base.calibrate(
        [request.question for request in given.calibration], [request.gold for request in given.calibration],
        session.progress,
    )  # fmt: skip


def _caches(session: Session, split: str, given: Compared, found: Told) -> list[System]:
    """Return the cosine cache in front of retrieval, its threshold fitted on the calibration requests.

    One has the threshold with the most right answers. Requests without a gold answer weigh nothing in that; where there
    are such, there is a second, careful cache, whose threshold is fitted with each of them that is answered costing as
    much as a right answer gains.
    """
    encoder = session.base.encoder
    held = cached(encoder, given.facts, given.calibration)
    standard = routing.told(session, f"{split}-calibration", given.calibration, [Route.RETRIEVAL]).right(
        Route.RETRIEVAL
    )
    right = [is_right(said.answer, request.gold) for said, request in zip(held, given.calibration, strict=True)]
    said, near = cached(encoder, given.facts, given.requests), [not request.gold for request in given.calibration]
    systems = []
    for name, penalty in ((CACHE, 0.0), (CAREFUL, 1.0)) if any(near) else ((CACHE, 0.0),):
        gained = [float(ok) - penalty * miss for ok, miss in zip(right, near, strict=True)]
        scores = [one.score for one in held], [one.score for one in said]
        _, routes = routing.threshold_routes(scores[0], gained, standard, scores[1])
        outcomes = [
            routing.recalled(str(one.answer)) if route is Route.MEMORY else found.of[Route.RETRIEVAL][i]
            for i, (one, route) in enumerate(zip(said, routes, strict=True))
        ]
        systems.append(System(name, routes, outcomes))
    return systems


def _closed(session: Session, split: str, requests: Sequence[Request]) -> System:
    tasks = [Task(request.id, request.question, Gold(request.gold), frozenset()) for request in requests]
    return System("closed-book", [Route.ABSTAIN] * len(tasks), ask(session, f"{split}-closed", tasks, closed_book=True))


def _named(found: Sequence[System], name: str) -> System:
    return next(system for system in found if system.name == name)
