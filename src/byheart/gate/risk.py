"""A bound on the share of wrong answers, from a calibration set: thresholds tested from the strictest on.

Owns the exact binomial test and the search. A threshold is accepted if so few wrong answers would, were the risk above
`alpha`, be seen with probability `delta` at most; the first that is not ends the search (fixed-sequence testing, so
that testing many costs nothing). The order follows from the scores alone, not from who was right. Questions that come
again, and those that memory learned word for word, must not make a promise: it has to hold without them, too.
Source: Angelopoulos et al. 2021, Learn then Test, section 3; Geifman & El-Yaniv 2017; Clopper & Pearson 1934.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.decisions import RiskBound
from byheart.errors import ConfigError

RISKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_HALVINGS = 60
_ASKED = "calibration questions that memory answers"
_NEW = "different calibration questions that memory answers and did not learn word for word"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How memory did on calibration questions.

    Attributes:
        scores: Probability of memory's answer, of the questions for which it had one.
        right: Whether that answer was right.
        is_new: Whether a question comes for the first time, and in words that memory did not learn.
        choices: How many memories these questions have chosen from; a promise then holds for whichever it was.
    """

    scores: tuple[float, ...] = ()
    right: tuple[bool, ...] = ()
    is_new: tuple[bool, ...] = ()
    choices: int = 1


def promised(held: Outcomes, alpha: float, delta: float) -> RiskBound:
    """Return the lowest threshold that `bounded` allows on all questions and, taken alone, on the new ones.

    Args:
        held: The calibration questions.
        alpha: Share of answers that may be wrong, between 0 and 1.
        delta: Probability that the promise fails, between 0 and 1; each of the choices gets an equal part of it.

    Returns:
        The stricter of the two bounds.

    Raises:
        ConfigError: `alpha` or `delta` is out of range, or there are too few calibration questions for them.
    """
    new = [i for i, is_new in enumerate(held.is_new) if is_new]
    part = delta / held.choices
    whole = bounded(held.scores, held.right, alpha, part)
    strict = bounded([held.scores[i] for i in new], [held.right[i] for i in new], alpha, part, _NEW)
    needed, n_new = least_questions(alpha, part), sum(held.scores[i] >= whole.threshold for i in new)
    if n_new < needed:  # so few were not tested on their own; all others above either threshold were, with both
        raise ConfigError(
            f"a risk of {alpha:g} at confidence {1 - delta:g} needs at least {needed} {_NEW}, among the {whole.n} that "
            f"it is surest of there are {n_new}; calibrate with more, or ask for a higher risk"
        )
    return replace(max(whole, strict, key=lambda bound: (bound.threshold, bound.upper)), delta=delta)


def least_questions(alpha: float, delta: float) -> int:
    """Return how many answered questions without a single error it takes to promise a risk."""
    return math.ceil(math.log(delta) / math.log1p(-alpha))


def bounded(
    scores: Sequence[float], right: Sequence[bool], alpha: float, delta: float, what: str = _ASKED
) -> RiskBound:
    """Return the lowest threshold at which at most `alpha` of the answers are wrong, with confidence `1 - delta`.

    Args:
        scores: Probability of memory's answer, per calibration question.
        right: Whether that answer is right.
        alpha: Share of answers that may be wrong, between 0 and 1.
        delta: Probability that the promise fails, between 0 and 1.
        what: The questions, in an error's words.

    Returns:
        The bound; a question is answered from memory where its score is at least the threshold.

    Raises:
        ConfigError: `alpha` or `delta` is out of range, or there are too few calibration questions for them.
    """
    if not 0 < alpha < 1 or not 0 < delta < 1:
        raise ConfigError(f"risk and its confidence are between 0 and 1, got {alpha} and {delta}; ask for risk 0.01")
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    values, wrong = np.asarray(scores, np.float64)[order], ~np.asarray(right, bool)[order]
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True)) + 1  # equal scores are answered together
    least, found = least_questions(alpha, delta), None
    for n in ends[ends >= least].tolist():
        errors = int(wrong[:n].sum())
        if at_most(errors, n, alpha) > delta:
            break
        found = RiskBound(alpha, delta, n, errors, upper_bound(errors, n, delta), float(values[n - 1]))
    if found is None:
        raise ConfigError(_too_few(values, wrong, alpha, delta, what))
    return found


def lowest_risk(held: Outcomes, delta: float) -> float | None:
    """Return the lowest of a few usual risks that can be promised, for people to read; None where none can.

    Args:
        held: The calibration questions.
        delta: Probability that a promise fails.

    Returns:
        The risk. Whoever asks for a risk because it is named here has chosen it after a look at the questions.
    """
    for alpha in RISKS:
        with suppress(ConfigError):
            promised(held, alpha, delta)
            return alpha
    return None


def at_most(errors: int, n: int, rate: float) -> float:
    """Return the probability of at most `errors` errors among `n` at an error rate."""
    logs = [_log_choose(n, k) + k * math.log(rate) + (n - k) * math.log1p(-rate) for k in range(errors + 1)]
    top = max(logs)
    return min(1.0, math.exp(top) * sum(math.exp(value - top) for value in logs))


def upper_bound(errors: int, n: int, delta: float) -> float:
    """Return the largest error rate at which at most `errors` among `n` still have probability `delta`."""
    if errors >= n:
        return 1.0
    low, high = errors / n, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(errors, n, min(middle, 1 - 1e-12)) > delta else (low, middle)
    return high


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _too_few(
    values: npt.NDArray[np.float64], wrong: npt.NDArray[np.bool_], alpha: float, delta: float, what: str
) -> str:
    needed = least_questions(alpha, delta)
    if len(values) < needed:
        return (
            f"a risk of {alpha:g} at confidence {1 - delta:g} needs at least {needed} {what}, there are "
            f"{len(values)}; calibrate with more, or ask for a higher risk"
        )
    errors = int(wrong[:needed].sum())
    return (
        f"a risk of {alpha:g} at confidence {1 - delta:g} cannot be promised: of the {needed} {what}, those it is "
        f"surest of, {errors} are answered wrongly; calibrate with more questions, or ask for a higher risk"
    )
