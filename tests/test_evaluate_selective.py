"""Coverage at a precision, areas and their intervals, against slow and obvious versions of themselves."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.errors import EvaluationError
from byheart.evaluate import selective
from byheart.evaluate.selective import Rated

NEVER = float("-inf")
SCORES = st.sampled_from([NEVER, -0.5, 0.0, 0.1, 0.2, 0.5, 0.9, 1.0])  # few, so that many are equal
ONE = st.tuples(SCORES, st.sampled_from(["right", "wrong", "unknown"]))
SOME = st.lists(ONE, min_size=1, max_size=30).filter(lambda found: any(said != "unknown" for _, said in found))
PRECISION = st.sampled_from([0.1, 0.5, 2 / 3, 0.75, 0.95, 1.0])


def arrays(queries: Sequence[tuple[float, str]]) -> tuple[list[float], list[bool], list[bool]]:
    return [s for s, _ in queries], [said == "right" for _, said in queries], [said != "unknown" for _, said in queries]


def slow_coverage(scores: Sequence[float], right: Sequence[bool], known: Sequence[bool], precision: float) -> float:
    best = 0
    for threshold in set(scores) - {NEVER}:
        answered = [is_right for score, is_right in zip(scores, right, strict=True) if score >= threshold]
        if sum(answered) / len(answered) >= precision - 1e-12:
            best = max(best, sum(answered))
    return best / sum(known)


def slow_auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    won = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in itertools.product(positive, negative))
    return won / (len(positive) * len(negative))


@given(SOME, PRECISION)
def test_coverage_is_that_of_trying_every_threshold(queries: list[tuple[float, str]], precision: float) -> None:
    columns = arrays(queries)
    assert selective.coverage_at_precision(*columns, precision) == pytest.approx(slow_coverage(*columns, precision))


@given(SOME, PRECISION, PRECISION)
def test_a_higher_precision_never_covers_more(queries: list[tuple[float, str]], one: float, other: float) -> None:
    columns = arrays(queries)
    low, high = sorted((one, other))
    assert selective.coverage_at_precision(*columns, high) <= selective.coverage_at_precision(*columns, low)


@given(SOME, PRECISION, st.randoms(use_true_random=False))
def test_the_order_of_queries_does_not_matter(queries: list[tuple[float, str]], precision: float, rng: object) -> None:
    shuffled = list(queries)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = arrays(queries), arrays(shuffled)
    assert selective.coverage_at_precision(*one, precision) == selective.coverage_at_precision(*other, precision)


@given(SOME, PRECISION)
def test_answering_from_the_threshold_on_gives_the_coverage(queries: list[tuple[float, str]], precision: float) -> None:
    scores, right, known = arrays(queries)
    threshold = selective.threshold_at_precision(Rated.of(scores, right, known), precision)
    answered = [is_right for score, is_right in zip(scores, right, strict=True) if score >= threshold]
    coverage = selective.coverage_at_precision(scores, right, known, precision)
    assert sum(answered) / sum(known) == coverage
    assert not answered or sum(answered) / len(answered) >= precision - 1e-9
    assert (threshold == float("inf")) == (coverage == 0)


@given(SOME, PRECISION, st.floats(0.1, 10), st.floats(-5, 5))
def test_only_the_order_of_scores_counts(
    queries: list[tuple[float, str]], precision: float, slope: float, offset: float
) -> None:
    scores, right, known = arrays(queries)
    moved = [score * slope + offset for score in scores]
    held = selective.coverage_at_precision(scores, right, known, precision)
    assert selective.coverage_at_precision(moved, right, known, precision) == held


def test_equal_scores_are_answered_together() -> None:
    # At 0.9 three of four are right; taking only the right ones of them would be a lie.
    scores, right, known = [0.9, 0.9, 0.9, 0.9, 0.5], [True, True, True, False, True], [True, True, True, False, True]
    assert selective.coverage_at_precision(scores, right, known, 0.95) == 0.0
    assert selective.coverage_at_precision(scores, right, known, 0.75) == 1.0


def test_a_precision_met_exactly_counts() -> None:
    for n, precision in itertools.product((20, 40, 100, 180, 200), (0.95, 0.98, 0.99)):
        n_right = round(n * precision)
        if abs(n_right - n * precision) < 1e-6:
            right = [i < n_right for i in range(n)]
            assert selective.coverage_at_precision([1.0] * n, right, right, precision) == 1.0


def test_what_has_no_answer_is_never_answered() -> None:
    assert selective.coverage_at_precision([NEVER, NEVER], [True, True], [True, True], 0.5) == 0.0
    assert selective.threshold_at_precision(Rated.of([NEVER], [False], [True]), 0.5) == float("inf")


@given(st.lists(SCORES, min_size=1, max_size=15), st.lists(SCORES, min_size=1, max_size=15))
def test_the_area_counts_pairs_and_ties_half(positive: list[float], negative: list[float]) -> None:
    area = selective.auc(positive, negative)
    assert area == pytest.approx(slow_auc(positive, negative))
    assert selective.auc(negative, positive) == pytest.approx(1 - area)


def rated(n: int, n_groups: int) -> Rated:
    rng = np.random.default_rng(1)
    known = rng.random(n) < 0.6
    right = known & (rng.random(n) < 0.8)
    return Rated.of(np.round(rng.normal(size=n) + right, 1), right, known, rng.integers(n_groups, size=n))


def drawn(held: Rated, seed: int) -> list[np.ndarray]:
    """Return the queries of every draw, written out one after the other."""
    rng = np.random.default_rng(seed)
    picks = rng.integers(held.n_groups, size=(selective.RESAMPLES, held.n_groups))
    return [np.concatenate([np.flatnonzero(held.groups == group) for group in row]) for row in picks]


def test_intervals_are_those_of_drawing_whole_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selective, "RESAMPLES", 60)
    held = rated(80, 12)
    scores, right, known = held.scores.tolist(), held.right.tolist(), held.known.tolist()
    covered, areas = [], []
    for places in drawn(held, 3):
        part = [[column[i] for i in places] for column in (scores, right, known)]
        covered.append(slow_coverage(*part, 0.8))
        positive = [score for score, is_known in zip(part[0], part[2], strict=True) if is_known]
        negative = [score for score, is_known in zip(part[0], part[2], strict=True) if not is_known]
        areas.append(slow_auc(positive, negative))
    coverage = selective.coverage_interval(held, 0.8, np.random.default_rng(3))
    area = selective.auc_interval(held, np.random.default_rng(3))
    assert (coverage.low, coverage.high) == pytest.approx(tuple(np.quantile(covered, (0.025, 0.975))))
    assert (area.low, area.high) == pytest.approx(tuple(np.quantile(areas, (0.025, 0.975))))
    assert coverage.value == pytest.approx(slow_coverage(scores, right, known, 0.8))
    assert (coverage.n, area.n) == (80, 80)


def test_queries_of_one_fact_are_drawn_together() -> None:
    # Ten facts of 100 queries each, every fact all right or all wrong: as uncertain as ten queries, not as a thousand.
    groups, right = np.repeat(np.arange(10), 100), np.repeat([True, False] * 5, 100)
    scores = np.where(right, 1.0, 0.0)
    known = np.ones(1000, np.bool_)
    together = selective.coverage_interval(Rated.of(scores, right, known, groups), 0.95, np.random.default_rng(7))
    apart = selective.coverage_interval(Rated.of(scores, right, known), 0.95, np.random.default_rng(7))
    assert together.low is not None
    assert together.high is not None
    assert apart.low is not None
    assert apart.high is not None
    assert together.high - together.low > 5 * (apart.high - apart.low)


def test_one_seed_gives_one_interval_and_a_lead_is_paired() -> None:
    held = rated(200, 40)
    first, second = (selective.coverage_interval(held, 0.8, np.random.default_rng(7)) for _ in range(2))
    assert first == second
    lead = selective.coverage_lead(held, held, 0.8, np.random.default_rng(7))
    assert (lead.value, lead.low, lead.high) == (0.0, 0.0, 0.0)
    blind = Rated.of(np.zeros(200), held.right & False, held.known, held.groups)
    lead = selective.coverage_lead(held, blind, 0.8, np.random.default_rng(7))
    assert (lead.value, lead.low, lead.high) == (first.value, first.low, first.high)


def test_groups_may_have_names() -> None:
    named = Rated.of([1.0, 0.5, 0.2], [True, False, False], [True, True, False], ["b", "a", "b"])
    assert named.groups.tolist() == [1, 0, 1]
    assert named.n_groups == 2


def test_what_cannot_be_measured_is_named() -> None:
    with pytest.raises(EvaluationError, match="as many"):
        Rated.of([1.0], [True, False], [True])
    with pytest.raises(EvaluationError, match="NaN"):
        Rated.of([float("nan")], [True], [True])
    with pytest.raises(EvaluationError, match="nothing answers"):
        Rated.of([1.0], [True], [False])
    with pytest.raises(EvaluationError, match="got none"):
        selective.coverage_at_precision([1.0], [False], [False], 0.95)
    with pytest.raises(EvaluationError, match=r"0\.95 for 95 %"):
        selective.coverage_at_precision([1.0], [True], [True], 95)
    with pytest.raises(EvaluationError, match="both sides"):
        selective.auc([1.0], [])
    with pytest.raises(EvaluationError, match="same queries"):
        selective.coverage_lead(rated(10, 3), rated(11, 3), 0.9, np.random.default_rng(0))
