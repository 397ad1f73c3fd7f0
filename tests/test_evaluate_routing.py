"""Systems that choose a route per request, on made-up outcomes; and the streams they are compared on."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.config import Config
from byheart.corpus.datasets import Claim
from byheart.corpus.splits import FeverSplit, fever_split
from byheart.decisions import Chance, Decision, RiskBound, Route, Wishes
from byheart.errors import ConfigError
from byheart.evaluate import comparison, fever_regimes, traffic
from byheart.evaluate.figures import Figure
from byheart.evaluate.recalling import Said
from byheart.evaluate.routing import (
    BUDGETS,
    SILENT,
    STANDARD,
    TAKEN,
    Request,
    System,
    Told,
    budget_figures,
    kind_figures,
    lead_figure,
    reliability_figures,
    risk_figures,
    routed_figures,
    systems,
    threshold_routes,
)
from byheart.evaluate.session import Outcome, Session
from byheart.types import Document, Question, Verdict
from test_evaluate_suites import write

RIGHT, WRONG = "yes", "no"


def outcome(text: str | None, retrievals: int = 0, reads: int = 0) -> Outcome:
    return Outcome(text, None, (), retrievals, reads, 0)


def made_up(memory: Sequence[str | None], both: Sequence[str | None], retrieval: Sequence[str | None]) -> Told:
    """Return what three routes answer to requests whose right answer is yes."""
    requests = [
        Request(str(i), "odd" if i % 2 else "even", Question(f"Is it {i}?"), (RIGHT,)) for i in range(len(both))
    ]
    return Told(
        requests,
        {
            Route.MEMORY: [outcome(text) for text in memory],
            Route.BOTH: [outcome(text, 0, 1) for text in both],
            Route.RETRIEVAL: [outcome(text, 1, 1) for text in retrieval],
        },
    )


TOLD = made_up(
    (RIGHT, WRONG, None, WRONG, None),
    (RIGHT, RIGHT, None, WRONG, None),
    (WRONG, RIGHT, RIGHT, WRONG, None),
)


class Base:
    """Decides by a fixed gain per question; promises no risk below a twentieth."""

    config, epoch, encoder = Config(), 1, None

    def __init__(self, gains: Sequence[float] = (), chance: float = 0.5) -> None:
        self.gains, self.chance = gains, chance

    def decide_many(
        self, questions: Sequence[Question], wishes: Sequence[Wishes]
    ) -> list[list[Decision] | ConfigError]:
        found: list[list[Decision] | ConfigError] = []
        for wish in wishes:
            try:
                found.append(self._decide(wish))
            except ConfigError as error:
                found.append(error)
        return found

    def _decide(self, wishes: Wishes) -> list[Decision]:
        if wishes.risk is not None and wishes.risk < 0.05:
            raise ConfigError("too few calibration questions")
        bound = None if wishes.risk is None else RiskBound(wishes.risk, 0.05, 100, 0, 0.03, 0.9)
        kept = sorted(self.gains, reverse=True)[: int((wishes.budget or 0.0) * len(self.gains))]
        routes = [Route.RETRIEVAL if gain in kept else Route.MEMORY for gain in self.gains]
        return [Decision(route, tuple(Chance(r, self.chance, 0.0) for r in TAKEN), bound) for route in routes]


def session(base: Base | None = None, folder: Path = Path("none")) -> Session:
    given: Any = base or Base()
    return Session("nq", folder, given, {}, folder, seed=5)


def figures(found: Sequence[Figure], system: str) -> dict[str, float]:
    return {figure.measure: figure.interval.value for figure in found if figure.system == system}


def to(*routes: Route) -> list[Decision]:
    return [Decision(route, ()) for route in routes]


TEXTS = st.sampled_from([RIGHT, WRONG, None])
ROWS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS, st.sampled_from([*TAKEN, Route.ABSTAIN])), min_size=1, max_size=12)


@given(rows=ROWS)
def test_no_system_is_above_the_oracle_which_pays_for_no_needless_retrieval(
    rows: list[tuple[str | None, str | None, str | None, Route]],
) -> None:
    memory, both, retrieval, routes = zip(*rows, strict=True)
    found = made_up(memory, both, retrieval)
    n_right = {
        system.name: sum(r.is_right(o) for r, o in zip(found.requests, system.outcomes, strict=True))
        for system in systems(found, {"gate": to(*routes)})
    }
    assert set(n_right) == {STANDARD, "memory-only", "both-only", "gate", "oracle"}
    assert n_right["oracle"] == max(n_right.values())
    oracle = next(system for system in systems(found, {}) if system.name == "oracle")
    only = sum(RIGHT not in (m, b) and r == RIGHT for m, b, r, _ in rows)
    assert sum(outcome.retrievals for outcome in oracle.outcomes) == only


def test_what_systems_get_right_pay_and_leave_unsaid_is_counted() -> None:
    gate = to(Route.MEMORY, Route.MEMORY, Route.RETRIEVAL, Route.ABSTAIN, Route.RETRIEVAL)
    found = routed_figures(session(), "split", TOLD.requests, systems(TOLD, {"gate": gate}))
    standard, chosen, memory = (figures(found, name) for name in (STANDARD, "gate", "memory-only"))
    assert (standard["retrieval_calls"], standard["accuracy"], standard["coverage"]) == (1.0, 0.4, 0.8)
    assert standard["false_memory_answers"] == 0.0
    assert "calls_saved" not in standard
    assert (chosen["accuracy"], chosen["coverage"], chosen["retrieval_calls"]) == (0.4, 0.6, 0.4)
    assert chosen["answer_precision"] == pytest.approx(2 / 3)
    assert chosen["calls_saved"] == pytest.approx(0.6)
    assert (chosen["false_memory_answers"], chosen[f"accuracy above {STANDARD}"]) == (0.2, 0.0)
    assert (memory["retrieval_calls"], memory["reader_calls"], memory["coverage"]) == (0.0, 0.0, 0.6)
    assert memory["false_memory_answers"] == 0.4
    assert figures(found, "both-only")["false_memory_answers"] == 0.0  # read, not recalled
    assert figures(found, "both-only")["reader_calls"] == 1.0
    assert figures(found, "oracle")["accuracy"] == 0.6
    silent = System("silent", [Route.ABSTAIN] * 5, TOLD.chosen([Route.ABSTAIN] * 5))
    said = figures(routed_figures(session(), "s", TOLD.requests, [*systems(TOLD, {}), silent]), "silent")
    assert (said["coverage"], said["accuracy"], said["retrieval_calls"], said["reader_calls"]) == (0, 0, 0, 0)


def test_an_answer_from_memory_where_none_is_right_is_wrong_and_one_from_documents_is_not_counted() -> None:
    miss = Request("n", "near miss", Question("Is it off?"), ())
    told = Told([miss], {r: [outcome(RIGHT, int(r is Route.RETRIEVAL))] for r in TAKEN})
    found = routed_figures(session(), "s", [miss, *TOLD.requests], [
        System(name, [route] * 6, [*told.chosen([route]), *TOLD.chosen([route] * 5)])
        for name, route in ((STANDARD, Route.RETRIEVAL), ("memory-only", Route.MEMORY))
    ])  # fmt: skip
    assert figures(found, STANDARD)["answer_precision"] == pytest.approx(2 / 4)
    assert figures(found, "memory-only")["answer_precision"] == pytest.approx(1 / 4)
    assert figures(found, "memory-only")["false_memory_answers"] == pytest.approx(3 / 6)


def test_kinds_are_told_apart_and_two_systems_compared_in_pairs() -> None:
    memory, standard = (next(s for s in systems(TOLD, {}) if s.name == n) for n in ("memory-only", STANDARD))
    found = kind_figures(session(), "s", TOLD.requests, memory)
    assert {(f.split, f.measure): f.interval.value for f in found} == {
        ("s: even", "accuracy"): pytest.approx(1 / 3), ("s: even", "answered_from_memory"): pytest.approx(1 / 3),
        ("s: odd", "accuracy"): 0.0, ("s: odd", "answered_from_memory"): 1.0,
    }  # fmt: skip
    lead = lead_figure(session(), "s", TOLD.requests, (memory, standard))
    assert lead.measure == f"accuracy above {STANDARD}"
    assert lead.interval.value == pytest.approx(-0.2)


def test_a_cosine_cache_takes_the_threshold_that_is_right_most_often() -> None:
    cosines, right, standard = [0.9, 0.8, 0.7, 0.6], [True, True, False, True], [False, False, True, False]
    threshold, routes = threshold_routes(cosines, right, standard, [0.85, 0.6, 0.5])
    assert threshold == 0.6  # as good as 0.8, and lower
    assert routes == [Route.MEMORY, Route.MEMORY, Route.RETRIEVAL]


def test_a_careful_cache_pays_for_near_misses_that_it_answers_and_the_other_does_not() -> None:
    kinds = ["known", "near", "known", "near", "near"]
    given = [Request(f"c{i}", kind, Question.parse(f"q{i}"), ("a",) if kind == "known" else ())
             for i, kind in enumerate(kinds)]  # fmt: skip
    cosines = {f"q{i}": cosine for i, cosine in enumerate((0.9, 0.8, 0.7, 0.6, 0.5))}
    assert cache_routes(given, cosines) == {"cosine-cache": 5, "cosine-cache, careful": 3}
    assert cache_routes([one for one in given if one.gold], cosines) == {"cosine-cache": 2}


def cache_routes(given: list[Request], cosines: Mapping[str, float]) -> dict[str, int]:
    """Return how many of the requests each cache answers, fitted on them, where retrieving is never right."""
    nothing = Told(given, {Route.RETRIEVAL: [SILENT] * len(given)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison.routing, "told", lambda *_: nothing)
        patch.setattr(
            comparison, "cached",
            lambda _encoder, _facts, asked: [Said("f", cosines[one.question.text], "a") for one in asked],
        )  # fmt: skip
        found = comparison._caches(session(), "s", comparison.Compared((), (), given, given), nothing)
    return {one.name: one.routes.count(Route.MEMORY) for one in found}


@pytest.mark.parametrize(("cosines", "right"), [([], []), ([0.99, 0.5], [False, False])])
def test_a_cosine_cache_that_is_never_better_never_answers(cosines: list[float], right: list[bool]) -> None:
    threshold, routes = threshold_routes(cosines, right, [True] * len(right), [1.0, 0.99, 0.2])
    assert threshold > 1
    assert routes == [Route.RETRIEVAL] * 3


@given(rows=st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_a_caches_threshold_is_the_best_of_all_also_among_equal_cosines(rows: list[tuple[int, bool, bool]]) -> None:
    cosines = [place / 4 for place, *_ in rows]
    right, standard = [row[1] for row in rows], [row[2] for row in rows]

    def n_right(threshold: float) -> int:
        return sum(r if c >= threshold else s for c, r, s in zip(cosines, right, standard, strict=True))

    threshold, _ = threshold_routes(cosines, right, standard, [])
    assert n_right(threshold) == max(map(n_right, (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)))


def test_retrievals_never_fall_with_a_larger_budget_and_stay_within_it() -> None:
    found = budget_figures(session(Base([0.5, -0.1, 0.9, 0.2, 0.3])), "s", TOLD, "gate")
    calls = [figures(found, "gate")[f"retrieval_calls@budget{budget:g}"] for budget in BUDGETS]
    assert calls == sorted(calls)
    assert (calls[0], calls[-1]) == (0.0, 1.0)
    assert all(call <= budget + 1e-9 for call, budget in zip(calls, BUDGETS, strict=True))
    assert figures(found, "gate")["accuracy@budget0"] == 0.2
    assert figures(found, "gate")["accuracy@budget1"] == 0.4


def test_a_risk_that_cannot_be_promised_is_left_out_and_the_others_are_observed() -> None:
    found = figures(risk_figures(session(Base([0.0] * 5)), "s", TOLD, "gate"), "gate")
    assert not {name for name in found if name.endswith(("@0.01", "@0.02"))}
    assert found["coverage_at_risk@0.05"] == 1.0
    assert found["risk_observed@0.05"] == pytest.approx(4 / 5)


def test_calibration_is_reported_per_route_of_what_was_answered() -> None:
    decisions = Base([0.0] * 5, chance=0.95)._decide(Wishes())
    found = reliability_figures(session(), "s", TOLD, decisions)
    assert figures(found, "route-memory")["reliability@0.95"] == pytest.approx(1 / 3)
    assert figures(found, "route-retrieval")["reliability@0.95"] == pytest.approx(2 / 4)
    assert figures(found, "route-memory")["ece"] == pytest.approx(0.95 - 1 / 3)
    assert reliability_figures(session(), "s", TOLD, to(*[Route.RETRIEVAL] * 5)) == []


# Streams.


def pair(name: str, i: int) -> dict[str, object]:
    misses = [{"question": f"where was {name} {i} never {word}"} for word in ("seen", "heard")]
    return {
        "id": f"{name}-{i}",
        "question": f"where was {name} {i} seen",
        "answers": [f"the river {name} {i}"],
        "paraphrases": [f"{word} {name} {i} seen" for word in ("place", "river", "spot")],
        "near_misses": misses,
    }


def gold(i: int) -> dict[str, object]:
    answers = [f"River {i:03d}", f"the {i:03d}"]
    context = {"title": f"Page {i}", "text": f"It was seen at River {i:03d}, near RIVER {i:03d} bridge."}
    return {"question": f"gold question {i}", "answers": answers, "ctxs": [context]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data sets of the stream, invented."""
    rows = [gold(i) for i in range(400)]
    write(tmp_path / "nq_open/nq-open-oracle.jsonl.gz", rows)
    lost: list[Mapping[str, object]] = [{"question": f"lost {i}", "answer": ["x"]} for i in range(120)]
    write(
        tmp_path / "nq_open/NQ-open.dev.jsonl.gz", [{"question": r["question"], "answer": ["y"]} for r in rows] + lost
    )
    write(tmp_path / "question_pairs/test_nq.jsonl", [{**pair("test", i), "id": f"nq-{i}"} for i in range(40)])
    for name in traffic.SETS:
        write(tmp_path / f"question_pairs/{name}.jsonl", [pair(name, i) for i in range(60)])
    return tmp_path


def test_streams_have_no_request_twice_and_none_in_two_of_them(data: Path) -> None:
    given = traffic.streams(data, 7)
    parts = (given.trained, given.calibration, given.requests)
    assert all(len(part) > 20 for part in parts)
    everything = [request for part in parts for request in part]
    assert len({request.question.text for request in everything}) == len(everything)
    ids = [(request.kind, request.id) for request in everything]
    assert len(set(ids)) == len(ids)
    assert all(len({r.id for r in part}) == len(part) for part in parts)  # logs are kept by id
    for part in parts:
        for kind, wanted in traffic.SHARES.items():
            assert sum(r.kind == kind for r in part) / len(part) == pytest.approx(wanted, abs=0.05)
    assert traffic.streams(data, 7) == given
    assert traffic.streams(data, 8).requests != given.requests
    assert len(traffic.streams(data, 7, 10).requests) == 10


def test_no_question_that_memory_holds_is_one_without_a_passage(data: Path) -> None:
    path = data / f"question_pairs/{traffic.SETS[0]}.jsonl"
    told = [{**pair("told", i), "question": f"Lost {i}?"} for i in range(0, 120, 4)]
    write(path, [*(pair(traffic.SETS[0], i) for i in range(60)), *told])
    given = traffic.streams(data, 7)
    lost = [r.question.text for part in (given.trained, given.calibration, given.requests) for r in part
            if r.kind == "no passage"]  # fmt: skip
    assert len(lost) > 6
    assert not {int(text.split()[1]) for text in lost} & set(range(0, 120, 4))


def test_no_claim_that_memory_holds_is_reported_on_or_calibrated_on(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [Claim(str(i), f"Tower {i % 150} is tall{'.' * (i % 2)}", Verdict.SUPPORTS, ("x",)) for i in range(300)]
    monkeypatch.setattr(fever_regimes, "fever_claims", lambda _: claims)
    of = {split: fever_regimes._claims(data, split) for split in FeverSplit}
    held = {claim.claim.rstrip(".") for claim in of[FeverSplit.MEMORY]}
    assert len(of[FeverSplit.MEMORY]) == sum(fever_split(claim.id) is FeverSplit.MEMORY for claim in claims)
    for split in (FeverSplit.CALIBRATION, FeverSplit.EVALUATION):
        assert of[split]
        assert not {claim.claim.rstrip(".") for claim in of[split]} & held


def test_what_is_a_near_miss_has_no_gold_answer_and_what_memory_holds_has_one(data: Path) -> None:
    given = traffic.streams(data, 7)
    assert all(bool(request.gold) is (request.kind != "near miss") for request in given.requests)
    held = {fact.answer for fact in given.facts}
    assert {r.gold[0] for r in given.requests if r.kind == "paraphrase"} <= held
    assert not {r.gold[0] for r in given.requests if r.kind in ("unseen", "no passage")} & held


def test_a_short_pool_makes_a_short_stream_and_not_a_skewed_one() -> None:
    pools = {kind: [Request(f"{kind}{i}", kind, Question("?"), ()) for i in range(40)] for kind in traffic.SHARES}
    found = traffic.drawn(pools, 1_000, random.Random(1))
    assert len(found) == 100
    assert {k: sum(r.kind == k for r in found) for k in pools} == {
        "paraphrase": 40, "unseen": 35, "near miss": 15, "no passage": 10,
    }  # fmt: skip


def test_noise_holds_a_wrong_answer_and_not_the_right_one(data: Path) -> None:
    made = traffic.noise(data, 7)
    assert made
    for document in made:
        i = int(document.page.removeprefix("noise/nq-"))
        answers = [f"river {i:03d}", f"the {i:03d}"]
        assert not [answer for answer in answers if answer in document.text.casefold()]
        others = {f"river {j:03d}" for j in range(400)} - set(answers)
        assert any(other in document.text.casefold() for other in others)
    assert traffic.noise(data, 7) == made


def test_pages_that_go_are_the_same_for_every_system_and_untitled_sentences_stay(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [Document(f"Page_{i}#0", "", "x") for i in range(200)] + [Document("untitled#3", "", "x")]
    monkeypatch.setattr(fever_regimes, "fever_documents", lambda _: pages)
    monkeypatch.setattr(fever_regimes, "page_title", lambda page: page.partition("#")[0])
    gone = fever_regimes.lost_pages(data, 0.9)
    assert len(gone) / 200 == pytest.approx(0.9, abs=0.06)
    assert "untitled#3" not in gone
    assert set(fever_regimes.lost_pages(data, 0.5)) < set(gone)
    assert fever_regimes.lost_pages(data, 0.0) == []
