"""The gate: chances, decisions, and a risk that is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.decisions import Evidence, RiskBound, Wishes
from byheart.errors import ConfigError, FormatError
from byheart.gate.evidence import NAMES, columns, evidence_of
from byheart.gate.gate import ROUTES, Gate, gains, price_for_budget
from byheart.gate.labels import oracle_route
from byheart.gate.risk import (
    RISKS,
    Outcomes,
    at_most,
    bounded,
    least_questions,
    lowest_risk,
    promised,
    upper_bound,
)
from byheart.types import Kind, Question, Recall, Route


def evidence(probability: float, candidates: int = 4, cited: bool = True) -> Evidence:
    return Evidence(probability, 1 - probability, 8 * probability - 4, probability, candidates, cited, 0.9, 6)


def outcomes(scores: Sequence[float], right: Sequence[bool], choices: int = 1) -> Outcomes:
    """Return how memory did on questions that are all new to it."""
    return Outcomes(tuple(scores), tuple(right), (True,) * len(scores), choices)


def asked(n: int, seed: int = 7) -> tuple[list[Evidence], dict[Route, list[bool]]]:
    """Return questions of which memory is right as often as it says, and retrieval half of the time."""
    rng = np.random.default_rng(seed)
    found = [evidence(float(p)) for p in rng.beta(0.4, 0.4, n)]
    memory = [bool(rng.random() < one.probability) for one in found]
    return found, {Route.MEMORY: memory, Route.RETRIEVAL: [bool(x) for x in rng.random(n) < 0.5]}


def test_at_most_is_the_binomial_tail() -> None:
    n, rate = 12, 0.3
    slow = [math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
    for errors in range(n + 1):
        assert at_most(errors, n, rate) == pytest.approx(sum(slow[: errors + 1]))


@given(n=st.integers(1, 300), share=st.floats(0, 1), delta=st.sampled_from([0.01, 0.05, 0.1]))
def test_the_upper_bound_is_where_the_tail_is_delta(n: int, share: float, delta: float) -> None:
    errors = int(share * n)
    bound = upper_bound(errors, n, delta)
    assert errors / n <= bound <= 1
    if errors < n:
        assert at_most(errors, n, bound) == pytest.approx(delta, rel=1e-3)


def test_too_few_calibration_questions_are_an_error_that_says_how_many_it_takes() -> None:
    assert least_questions(0.01, 0.05) == 299
    with pytest.raises(ConfigError, match="at least 299"):
        bounded([0.9] * 298, [True] * 298, 0.01, 0.05)
    assert bounded([0.9] * 299, [True] * 299, 0.01, 0.05).threshold == 0.9


def test_a_memory_that_errs_too_often_where_it_is_surest_cannot_be_promised() -> None:
    with pytest.raises(ConfigError, match="149 are answered wrongly"):
        bounded([0.9 - i / 1e6 for i in range(600)], [i % 2 == 0 for i in range(600)], 0.01, 0.05)


def test_equal_scores_are_answered_together() -> None:
    bound = bounded([0.9] * 400 + [0.5] * 400, [True] * 400 + [False] * 400, 0.01, 0.05)
    assert (bound.threshold, bound.n, bound.wrong) == (0.9, 400, 0)


def test_the_promise_is_broken_no_more_often_than_it_says() -> None:
    rng = np.random.default_rng(11)
    alpha, delta, broken, runs = 0.05, 0.1, 0, 300
    for _ in range(runs):
        scores = rng.random(500)
        risk = 0.2 * (1 - scores)  # the true risk of an answer with this score
        right = rng.random(500) >= risk
        try:
            bound = bounded(scores.tolist(), right.tolist(), alpha, delta)
        except ConfigError:
            continue
        assert bound.upper <= alpha + 1e-9
        # Scores are uniform: the answers above t have the mean risk .2 · (1 - t) / 2.
        broken += 0.2 * (1 - bound.threshold) / 2 > alpha
    assert broken / runs <= delta + 3 * math.sqrt(delta * (1 - delta) / runs)


def test_a_fitted_gate_is_calibrated_where_the_default_is_not() -> None:
    found, right = asked(4000)
    held, truth = asked(4000, seed=8)

    def error(gate: Gate) -> float:
        chances = gate.probabilities(held)[Route.MEMORY]
        bins = np.minimum((chances * 15).astype(int), 14)
        labels = np.array(truth[Route.MEMORY], float)
        return float(sum(abs(chances[bins == b].sum() - labels[bins == b].sum()) for b in range(15)) / len(held))

    assert error(Gate.fit(found, right)) < 0.03
    assert error(Gate.fit(found, right)) < error(Gate.default())


def test_memory_is_chosen_where_it_is_sure_and_retrieval_where_not() -> None:
    gate = Gate.fit(*asked(2000))
    sure, unsure, empty = gate.decide([evidence(0.99), evidence(0.05), evidence(0.0, 0)], None, 0.0)
    assert (sure.route, unsure.route, empty.route) == (Route.MEMORY, Route.RETRIEVAL, Route.RETRIEVAL)


def test_memory_never_answers_below_the_threshold_of_a_promised_risk() -> None:
    bound = RiskBound(0.01, 0.05, 500, 0, 0.006, 0.97)
    gate = Gate.fit(*asked(2000))
    for probability in np.linspace(0, 1, 101):
        [decision] = gate.decide([evidence(float(probability))], bound, 0.0)
        assert decision.route is not Route.MEMORY or probability >= bound.threshold
        assert decision.bound == bound


def test_a_dearer_retrieval_is_chosen_less_often_and_a_budget_is_kept() -> None:
    found, right = asked(2000)
    gate = Gate.fit(found, right)
    rates = [
        sum(d.route is Route.RETRIEVAL for d in gate.decide(found, None, price)) / len(found)
        for price in (0.0, 0.1, 0.3, 1.0)
    ]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1] == 0.0
    chances = gate.probabilities(found)
    gains = chances[Route.RETRIEVAL] - np.maximum(chances[Route.MEMORY], chances[Route.BOTH])
    for budget in (0.1, 0.3, 0.5):
        decisions = gate.decide(found, None, price_for_budget(gains.tolist(), budget))
        assert sum(d.route is Route.RETRIEVAL for d in decisions) / len(found) == pytest.approx(budget, abs=0.01)
    assert price_for_budget([-0.3, -0.2], 0.5) == 0.0  # a budget is no reason to retrieve where nothing is gained


def test_a_gate_comes_back_from_its_json_and_refuses_another_format() -> None:
    gate = Gate.fit(*asked(200))
    assert Gate.from_json(gate.to_json()) == gate
    for text in ("{", "{}", gate.to_json().replace("log_odds", "other")):
        with pytest.raises(FormatError, match="calibrate"):
            Gate.from_json(text)


def test_one_outcome_per_question_is_wanted() -> None:
    with pytest.raises(ConfigError):
        Gate.fit([], {})
    with pytest.raises(ConfigError):
        Gate.fit([evidence(0.5)], {Route.MEMORY: [True, False]})


def test_the_oracle_takes_the_cheapest_right_route() -> None:
    assert oracle_route({Route.MEMORY: True, Route.RETRIEVAL: True}) is Route.MEMORY
    assert oracle_route({Route.MEMORY: False, Route.RETRIEVAL: True}) is Route.RETRIEVAL
    assert oracle_route({Route.MEMORY: False, Route.BOTH: True, Route.RETRIEVAL: True}) is Route.BOTH
    assert oracle_route({Route.MEMORY: False, Route.RETRIEVAL: False}) is Route.ABSTAIN


def shaped(sharpness: float = 3.0) -> Gate:
    """Return a gate as joint training leaves it: its own shape, and a price."""
    weights = {route: tuple(sharpness * (i - 2) / 7 for i in range(len(NAMES) + 1)) for route in ROUTES}
    return Gate(weights, price=0.2, is_trained=True)


def test_a_trained_gate_is_scaled_to_held_out_questions_and_keeps_its_order() -> None:
    gate = Gate.fit(*asked(1000))
    off = Gate({route: tuple(2 * w for w in row) for route, row in gate.weights.items()}, 1000, 0.2, True)  # too sure
    found, right = asked(2000, seed=9)
    scaled = off.scaled(found, right)
    assert (scaled.n, scaled.price, scaled.is_trained) == (2000, 0.2, True)
    memory = Route.MEMORY
    before, after = off.probabilities(found)[memory], scaled.probabilities(found)[memory]
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= -1e-9).all()
    marks = np.array(right[memory], float)
    assert np.mean((after - marks) ** 2) < np.mean((before - marks) ** 2)
    assert after.mean() == pytest.approx(marks.mean(), abs=0.02)
    assert scaled.weights[Route.BOTH] == off.weights[Route.BOTH]  # of which nothing was measured
    inner, whole = np.array(scaled.weights[memory]), np.array(off.weights[memory])
    ratio = inner[:-1][whole[:-1] != 0] / whole[:-1][whole[:-1] != 0]
    assert ratio == pytest.approx(ratio[0])


def test_a_trained_gate_comes_back_from_its_json_with_its_price() -> None:
    gate = shaped()
    assert Gate.from_json(gate.to_json()) == gate
    older = gate.to_json().replace('"is_trained"', '"other"')
    with pytest.raises(FormatError, match="calibrate"):
        Gate.from_json(older)


def test_gains_are_over_the_best_open_route_and_the_whole_chance_where_memory_is_empty() -> None:
    gate = shaped()
    found = [evidence(0.9), evidence(0.9, cited=False), evidence(0.0, 0, cited=False)]
    chances = gate.probabilities(found)
    memory, both, retrieval = (chances[route] for route in ROUTES)
    slow = [
        retrieval[0] - max(memory[0], both[0]),
        retrieval[1] - memory[1],
        retrieval[2],
    ]
    assert gains(gate, found) == pytest.approx(slow)


def test_a_claim_is_a_column_of_its_own() -> None:
    question = evidence(0.6)
    rows = columns([question, replace(question, is_claim=True)])
    assert rows.shape == (2, len(NAMES))
    differing = [name for name, a, b in zip(NAMES, rows[0], rows[1], strict=True) if a != b]
    assert differing == ["is_claim"]
    for kind, flag in ((Kind.QUESTION, False), (Kind.CLAIM, True)):
        assert evidence_of(Recall(Question("Is it deep?", kind), None, 0.0, 1.0), False, 0.5, 2).is_claim is flag
    assert columns([]).shape == (0, len(NAMES))


@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=12), smaller=st.floats(0, 1), larger=st.floats(0, 1))
def test_a_smaller_budget_never_retrieves_more(shares: list[float], smaller: float, larger: float) -> None:
    gained = [2 * share - 1 for share in shares]
    prices = [price_for_budget(gained, budget) for budget in sorted((smaller, larger))]
    calls = [sum(gain > price for gain in gained) for price in prices]
    assert calls[0] <= calls[1]
    assert calls[0] <= min(smaller, larger) * len(shares) + 1e-9


def test_what_training_learned_is_kept_only_where_it_tells_more_than_a_fit_anew() -> None:
    rng = np.random.default_rng(3)
    cosines = rng.uniform(0, 1, 400)
    found = [Evidence(0.5, 0.5, 0.0, float(cosine), 1, True, 0.5, 4) for cosine in cosines]
    right = {Route.MEMORY: [bool(rng.random() < cosine) for cosine in cosines]}
    place = NAMES.index("cosine")
    flat = (0.0,) * (len(NAMES) + 1)
    good, bad = ((*flat[:place], slope, *flat[place + 1 :]) for slope in (5.0, 0.0))
    noisy = (*bad[:-2], 9.0, 0.0)  # of a column that says nothing here

    def trained(weights: tuple[float, ...]) -> Gate:
        return Gate({**Gate.default().weights, Route.MEMORY: weights}, price=0.3, is_trained=True)

    kept, thrown = trained(good).calibrated(found, right), trained(noisy).calibrated(found, right)
    assert (kept.is_trained, kept.price, kept.n) == (True, 0.3, 400)
    assert kept.weights == trained(good).scaled(found, right).weights
    assert (thrown.is_trained, thrown.price) == (False, 0.3)
    assert thrown.weights == Gate.fit(found, right).weights
    assert thrown.loss(found, right) < trained(noisy).scaled(found, right).loss(found, right)
    assert Gate.default().calibrated(found, right) == Gate.fit(found, right)


@pytest.mark.parametrize(
    ("n", "wrong"), [(10, 0), (29, 0), (59, 0), (300, 0), (300, 1), (300, 30), (3000, 2), (600, 300)]
)
def test_the_lowest_risk_is_the_first_that_can_be_promised(n: int, wrong: int) -> None:
    scores = [1 - i / (2 * n) for i in range(n)]
    right = [i < n - wrong for i in range(n)]  # it errs where it is least sure
    found = lowest_risk(outcomes(scores, right), 0.05)
    lower = [alpha for alpha in RISKS if found is None or alpha < found]
    for alpha in lower:
        with pytest.raises(ConfigError):
            bounded(scores, right, alpha, 0.05)
    if found is not None:
        assert bounded(scores, right, found, 0.05).upper <= found


TIMES = st.sampled_from((0, 1, 14, 29, 59, 299, 3000))  # a question that was asked so often scores the same each time


@given(st.lists(st.tuples(st.sampled_from((0.5, 0.8, 0.9, 0.99)), TIMES, st.integers(0, 3)), max_size=4))
def test_the_lowest_risk_is_that_of_asking_for_each_in_turn_also_where_questions_were_asked_many_times(
    asked: list[tuple[float, int, int]],
) -> None:
    scores = [score for score, n, wrong in asked for _ in range(n + wrong)]
    right = [i < n for _, n, wrong in asked for i in range(n + wrong)]

    def is_promised(alpha: float) -> bool:
        try:
            return bounded(scores, right, alpha, 0.05).alpha == alpha
        except ConfigError:
            return False

    assert lowest_risk(outcomes(scores, right), 0.05) == next(filter(is_promised, sorted(RISKS)), None)


def test_no_risk_can_be_promised_of_a_memory_that_is_wrong_or_was_hardly_asked() -> None:
    assert lowest_risk(Outcomes(), 0.05) is None
    assert lowest_risk(outcomes([0.9] * 5, [True] * 5), 0.05) is None
    assert lowest_risk(outcomes([1 - i / 1e4 for i in range(999)], [False] * 999), 0.05) is None
    assert lowest_risk(outcomes([0.9] * 299, [True] * 299), 0.05) == 0.01


def test_copies_of_questions_and_questions_learned_word_for_word_promise_nothing_alone() -> None:
    copies = Outcomes((0.9,) * 300, (True,) * 300, (True, *(False,) * 299))
    with pytest.raises(ConfigError, match=r"299 different calibration questions .* there are 1"):
        promised(copies, 0.01, 0.05)
    assert lowest_risk(copies, 0.05) is None
    copied = replace(outcomes([0.9] * 600, [True] * 600), is_new=(True,) * 299 + (False,) * 301)
    assert promised(copied, 0.01, 0.05).n == 299


def test_a_threshold_at_which_the_new_questions_were_never_tested_is_not_promised() -> None:
    groups = ((0.99, 300, True, False), (0.99, 6, True, True), (0.99, 4, False, True), (0.8, 200, True, True),
              (0.8, 100, False, False))  # fmt: skip
    rows = [(score, right, new) for score, n, right, new in groups for _ in range(n)]
    scores, right, new = (tuple(row[i] for row in rows) for i in range(3))
    assert bounded(scores, right, 0.05, 0.05).threshold == 0.99
    with pytest.raises(ConfigError, match="among the 310 that it is surest of there are 10"):
        promised(Outcomes(scores, right, new), 0.05, 0.05)


def test_copies_of_a_question_that_is_answered_wrongly_count_each_time() -> None:
    scores, right = [0.9] * 400 + [0.8] * 300, [True] * 400 + [False] * 100 + [True] * 200
    held = replace(outcomes(scores, right), is_new=(True,) * 401 + (False,) * 99 + (True,) * 200)
    found = promised(held, 0.02, 0.05)
    assert (found.threshold, found.n, found.wrong) == (0.9, 400, 0)


@given(choices=st.integers(1, 8), n=st.integers(1, 1000), wrong=st.integers(0, 3))
def test_questions_that_chose_a_memory_must_show_more_for_the_same_promise(choices: int, n: int, wrong: int) -> None:
    scores, right = [1 - i / (2 * n) for i in range(n)], [i < n - wrong for i in range(n)]
    try:
        found = promised(outcomes(scores, right, choices), 0.05, 0.05)
    except ConfigError:
        return
    without = promised(outcomes(scores, right), 0.05, 0.05)
    assert found.delta == without.delta == 0.05
    assert found.threshold >= without.threshold
    assert at_most(found.wrong, found.n, 0.05) <= 0.05 / choices


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 0.0, 1.0, 2.0])
def test_a_risk_or_confidence_out_of_range_is_refused_when_it_is_wished_for(value: float) -> None:
    for wish in ({"risk": value}, {"risk": 0.01, "confidence": value}):
        with pytest.raises(ConfigError, match=f"got {value}"):
            Wishes(**wish)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.1])
def test_a_budget_out_of_range_is_refused_when_it_is_wished_for(value: float) -> None:
    with pytest.raises(ConfigError, match=f"got {value}"):
        Wishes(budget=value)


def test_wishes_may_be_none_and_a_budget_all_or_nothing() -> None:
    assert Wishes() == Wishes(None, 0.95, None)
    assert [Wishes(budget=budget).budget for budget in (0.0, 1.0)] == [0.0, 1.0]


def test_before_calibration_memory_must_be_surer_of_a_claim_than_of_a_question() -> None:
    asked_of = [
        replace(evidence(p, cited=False), is_claim=is_claim) for p in (0.85, 0.99) for is_claim in (False, True)
    ]
    routes = [decision.route for decision in Gate.default().decide(asked_of, None, 0.0)]
    assert routes == [Route.MEMORY, Route.RETRIEVAL, Route.MEMORY, Route.MEMORY]
