"""Intervals: paired bootstrap, exact binomial, calibration error."""

import math

import numpy as np
import pytest

from byheart.errors import EvaluationError
from byheart.evaluate.calibration import calibration_error
from byheart.evaluate.intervals import Interval, binomial, bootstrap, difference, mean, quantile, ratio


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_mean_has_its_textbook_interval() -> None:
    values = rng(1).normal(3, 2, 2_000)
    found = mean(values, rng())
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert found.n == 2_000


def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    covered = 0
    for seed in range(200):
        found = mean(rng(seed).random(60) < 0.3, rng(seed))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.3 <= found.high
    assert 178 <= covered <= 199


def test_the_same_seed_gives_the_same_interval_and_pairs_two_figures() -> None:
    first, second = rng(1).random(300), rng(2).random(300)
    assert mean(first, rng()) == mean(first, rng())
    assert mean(first, rng()) != mean(first, rng(8))
    apart = mean(first, rng()), mean(second, rng())
    assert difference(first, second, rng()).value == pytest.approx(apart[0].value - apart[1].value)


def test_a_paired_difference_is_surer_than_two_separate_figures() -> None:
    hard = rng(1).random(500)
    found = difference(hard + 0.01, hard, rng())
    assert found.low == pytest.approx(0.01)
    assert found.high == pytest.approx(0.01)
    single = mean(hard, rng())
    assert single.low is not None
    assert single.high is not None
    assert single.high - single.low > 0.04


def test_large_samples_are_drawn_in_pieces_with_the_same_result_as_a_slow_loop() -> None:
    values = rng(1).random(700_000)
    generator = rng()
    slow = [values[generator.integers(700_000, size=(2, 700_000))].mean(axis=1) for _ in range(2)]
    found = bootstrap(700_000, lambda picks: values[picks].mean(axis=1), rng(), resamples=4)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(np.concatenate(slow), (0.025, 0.975))))


def test_one_question_and_equal_values_give_an_interval_without_width() -> None:
    assert mean([0.4], rng()) == Interval(0.4, 0.4, 0.4, 1)
    assert mean([True] * 5, rng()) == Interval(1.0, 1.0, 1.0, 5)


def test_quantiles_and_ratios_have_intervals_too() -> None:
    median = quantile(np.arange(101), 0.5, rng())
    assert median.value == 50
    assert median.low is not None
    assert 35 < median.low < 50
    right, answered = np.array([1, 0, 0, 1.0]), np.array([1, 1, 0, 1.0])
    assert ratio(right, answered, rng()).value == pytest.approx(2 / 3)
    nothing = ratio([0.0], [0.0], rng())
    assert math.isnan(nothing.value)
    assert nothing.low is None


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.3084971),  # 1 - 0.025 ** (1 / 10)
        (10, 10, 0.6915029, 1.0),
        (5, 10, 0.1870860, 0.8129140),
        (1, 100, 0.0002531, 0.0544594),
        (95, 100, 0.8871651, 0.9835681),
    ],
)
def test_the_binomial_interval_is_clopper_and_pearsons(successes: int, n: int, low: float, high: float) -> None:
    found = binomial(successes, n)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    assert found.value == successes / n


def test_the_ends_of_a_binomial_interval_leave_two_and_a_half_percent_on_each_side() -> None:
    found = binomial(37, 6_666)
    assert found.low is not None
    assert found.high is not None

    def at_most(k: int, p: float) -> float:
        logs = (
            math.lgamma(6_667) - math.lgamma(i + 1) - math.lgamma(6_667 - i) + i * math.log(p)
            + (6_666 - i) * math.log1p(-p) for i in range(k + 1)
        )  # fmt: skip
        return math.fsum(map(math.exp, logs))

    assert at_most(37, found.high) == pytest.approx(0.025, rel=1e-6)
    assert 1 - at_most(36, found.low) == pytest.approx(0.025, rel=1e-6)


def test_impossible_counts_and_missing_questions_are_named() -> None:
    with pytest.raises(EvaluationError, match="7 of 5"):
        binomial(7, 5)
    with pytest.raises(EvaluationError, match="0 of 0"):
        binomial(0, 0)
    with pytest.raises(EvaluationError, match="got none"):
        mean([], rng())
    with pytest.raises(EvaluationError, match="3 and 2"):
        difference([1, 2, 3], [1, 2], rng())


def test_calibration_error_is_the_gap_in_each_bin() -> None:
    confidences = [0.9] * 10 + [0.1] * 10
    right = [1] * 9 + [0] + [0] * 5 + [1] * 5
    assert calibration_error(confidences, right, rng()).value == pytest.approx(0.5 * 0.0 + 0.5 * 0.4)
    assert calibration_error([1.0, 0.0], [1, 0], rng()) == Interval(0.0, 0.0, 0.0, 2)


def test_calibration_error_equals_a_slow_loop_over_bins() -> None:
    confidences, right = rng(1).random(400), rng(2).random(400) < 0.6
    bins = [min(int(c * 15), 14) for c in confidences]
    slow = sum(abs(sum(right[i] - confidences[i] for i in range(400) if bins[i] == b)) for b in range(15)) / 400
    found = calibration_error(confidences, right, rng())
    assert found.value == pytest.approx(slow)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.high


@pytest.mark.parametrize("wrong", [1.2, -0.1, math.nan])
def test_a_confidence_that_is_no_probability_is_named(wrong: float) -> None:
    with pytest.raises(EvaluationError, match="from 0 to 1"):
        calibration_error([wrong], [1], rng())
