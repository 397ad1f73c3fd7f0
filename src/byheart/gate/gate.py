"""The gate: evidence to calibrated chances of the routes, and a decision under a risk or a budget.

Owns the curves, one per route, their fit, and the order of preference. Costs well under a millisecond: a product of two
small matrices. Knows no memory, no retriever and no reader.
Source: Platt 1999; Guo et al. 2017, section 4, on calibrating after the fact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from byheart.decisions import Chance, Decision, Evidence, RiskBound, Route
from byheart.errors import ConfigError, FormatError
from byheart.gate.evidence import NAMES, Columns, columns
from byheart.gate.labels import COSTS

ROUTES = (Route.MEMORY, Route.BOTH, Route.RETRIEVAL)
FORMAT = 2
_RIDGE = 1e-2
_STEPS = 50
# Before any calibration, and what every fit is held near: memory is taken to be as right as it says, and answers where
# it says .73 or more. Of a claim it must say .95, and .98 where there are words to read: claims that differ in one word
# deceive it more often than questions do (docs/log.md).
_START: Mapping[Route, tuple[float, ...]] = {
    Route.MEMORY: (4.0, 0.0, 0.0, 0.0, 0.0, 0.0, -8.0, -2.0, 0.0),
    Route.BOTH: (2.0, 0.0, 0.0, 1.0, 0.0, 0.0, -8.0, 0.0, -1.0),
    Route.RETRIEVAL: (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Gate:
    """Curves of the routes.

    Attributes:
        weights: Per route one weight for each column of the evidence, and an offset.
        n: Questions they were fitted on; 0 where they are the defaults.
        price: Of one retrieval, in probability of being right, where training was given a budget.
        is_trained: Whether their shape comes from joint training, so that a fit only scales and shifts them.
    """

    weights: Mapping[Route, tuple[float, ...]]
    n: int = 0
    price: float = 0.0
    is_trained: bool = False

    @classmethod
    def default(cls) -> Gate:
        """Return the gate of a knowledge base that was never calibrated."""
        return cls(_START)

    @classmethod
    def fit(cls, found: Sequence[Evidence], right: Mapping[Route, Sequence[bool]]) -> Gate:
        """Return the gate that says best how often each route is right.

        Args:
            found: Evidence of held-out questions.
            right: Per route, whether its answer was right.

        Returns:
            The gate.

        Raises:
            ConfigError: There is no question, or a route has another number of them.
        """
        if not found or any(len(values) != len(found) for values in right.values()):
            raise ConfigError(f"a gate is fitted on one outcome per question and route, got {len(found)} questions")
        rows = columns(found)
        fitted = {route: _fitted(rows, np.asarray(values, float), _START[route]) for route, values in right.items()}
        return cls({**_START, **fitted}, len(found))

    def scaled(self, found: Sequence[Evidence], right: Mapping[Route, Sequence[bool]]) -> Gate:
        """Return this gate with the log-odds of each route scaled and shifted, its temperature and its offset.

        Args:
            found: Evidence of held-out questions.
            right: Per route, whether its answer was right.

        Returns:
            The gate; the order in which it puts questions stays, but where a scale would be negative.
        """
        rows, weights = _with_offset(columns(found)), dict(self.weights)
        for route, values in right.items():
            held = np.array(weights[route])
            scale, shift = _fitted((rows @ held)[:, None], np.asarray(values, float), (1.0, 0.0))
            weights[route] = (*(float(weight) for weight in held[:-1] * scale), float(held[-1] * scale + shift))
        return replace(self, weights=weights, n=len(found))

    def calibrated(self, found: Sequence[Evidence], right: Mapping[Route, Sequence[bool]]) -> Gate:
        """Return the gate to use after calibration: one fitted anew, or this one scaled where that tells more.

        What joint training learned is kept only where it beats the parts alone on questions it was not scaled on: each
        half of the questions is judged by both as fitted on the other half.

        Args:
            found: Evidence of held-out questions.
            right: Per route, whether its answer was right.

        Returns:
            The gate, fitted on all questions.
        """
        if not self.is_trained:
            return Gate.fit(found, right)
        scaled = anew = 0.0
        for side in (0, 1):
            one, other = _half(found, right, side), _half(found, right, 1 - side)
            scaled += self.scaled(*one).loss(*other)
            anew += Gate.fit(*one).loss(*other)
        return self.scaled(found, right) if scaled <= anew else replace(Gate.fit(found, right), price=self.price)

    def loss(self, found: Sequence[Evidence], right: Mapping[Route, Sequence[bool]]) -> float:
        """Return how badly the chances tell what was right: mean cross-entropy over routes, in nats."""
        chances = self.probabilities(found)
        terms = [
            -np.log(np.where(np.asarray(values, bool), chances[route], 1 - chances[route]).clip(1e-12))
            for route, values in right.items()
        ]
        return float(np.mean(terms))

    @classmethod
    def from_json(cls, text: str) -> Gate:
        """Return a gate that `to_json` wrote; FormatError where it is another format."""
        try:
            held = json.loads(text)
            weights = {Route(name): tuple(map(float, row)) for name, row in held["weights"].items()}
            if held["format"] != FORMAT or tuple(held["columns"]) != NAMES:
                raise ValueError("its columns are others")
            if set(weights) != set(ROUTES) or {len(row) for row in weights.values()} != {len(NAMES) + 1}:
                raise ValueError("its routes or their weights are not all there")
            numbers = [held["price"], *(weight for row in weights.values() for weight in row)]
            if not all(map(math.isfinite, numbers)):
                raise ValueError("a number is not finite")
            return cls(weights, int(held["n"]), float(held["price"]), bool(held["is_trained"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise FormatError(f"the gate cannot be read ({error}); fit it anew with: byheart calibrate") from error

    def to_json(self) -> str:
        """Return the gate as JSON."""
        weights = {route.value: list(row) for route, row in self.weights.items()}
        held = {"weights": weights, "n": self.n, "price": self.price, "is_trained": self.is_trained}
        return json.dumps({"format": FORMAT, "columns": list(NAMES), **held})

    def probabilities(self, found: Sequence[Evidence]) -> dict[Route, npt.NDArray[np.float64]]:
        """Return per route the calibrated probability of being right. Shapes `batch`."""
        rows = _with_offset(columns(found))
        return {route: _sigmoid(rows @ np.array(self.weights[route])) for route in ROUTES}

    def decide(self, found: Sequence[Evidence], bound: RiskBound | None, price: float) -> list[Decision]:
        """Return which way each question goes.

        Args:
            found: Evidence.
            bound: Memory answers only at or above its threshold; None lets the chances alone decide.
            price: What a retrieval costs, in probability of being right: a dearer route must be so much better.

        Returns:
            One decision per question.
        """
        chances = self.probabilities(found)
        return [
            _decision(one, [Chance(r, float(chances[r][i]), COSTS[r]) for r in ROUTES], bound, price)
            for i, one in enumerate(found)
        ]


def _half(
    found: Sequence[Evidence], right: Mapping[Route, Sequence[bool]], side: int
) -> tuple[Sequence[Evidence], dict[Route, Sequence[bool]]]:
    return found[side::2], {route: values[side::2] for route, values in right.items()}


def gains(gate: Gate, found: Sequence[Evidence]) -> list[float]:
    """Return how much likelier retrieval is to be right than the best open route without it, per question."""
    chances, without = gate.probabilities(found), np.zeros(len(found))
    for route in (Route.MEMORY, Route.BOTH):
        is_open = [_is_open(route, one, None) for one in found]
        without = np.maximum(without, np.where(is_open, chances[route], 0.0))
    return [float(gain) for gain in chances[Route.RETRIEVAL] - without]


def price_for_budget(gained: Sequence[float], budget: float) -> float:
    """Return the least price of a retrieval at which at most a share of questions is worth it.

    Args:
        gained: How much likelier retrieval is to be right than the best route without, per calibration question.
        budget: Retrievals per question, 0 to 1.

    Returns:
        The price; questions with a larger gain are retrieved for.

    Raises:
        ConfigError: The budget is out of range, or there is no question.
    """
    if not 0 <= budget <= 1 or not len(gained):
        raise ConfigError(
            f"a budget is 0 to 1 retrievals per question, got {budget} on {len(gained)} questions; correct it"
        )
    ordered = np.sort(np.asarray(gained, np.float64))[::-1]
    kept = int(np.floor(budget * len(ordered)))
    return max(float(ordered[kept]), 0.0) if kept < len(ordered) else 0.0


def _decision(found: Evidence, chances: Sequence[Chance], bound: RiskBound | None, price: float) -> Decision:
    """Return the route with the highest chance less what it costs; memory only where the bound lets it."""
    memory = next(chance for chance in chances if chance.route is Route.MEMORY)
    if bound is not None and _is_open(Route.MEMORY, found, bound):
        return Decision(memory.route, tuple(chances), bound)  # what is promised is promised of all of these
    open_routes = [chance for chance in chances if _is_open(chance.route, found, bound)]
    best = max(open_routes, key=lambda chance: (chance.probability - price * chance.cost, -ROUTES.index(chance.route)))
    return Decision(best.route, tuple(chances), bound)


def _is_open(route: Route, found: Evidence, bound: RiskBound | None) -> bool:
    if route is Route.RETRIEVAL:
        return True
    if not found.candidates or (route is Route.BOTH and not found.cited):
        return False
    return bound is None or found.probability >= bound.threshold


def _fitted(rows: Columns, right: npt.NDArray[np.float64], start: Sequence[float]) -> tuple[float, ...]:
    """Return the weights of the logistic curve, by Newton's method, held near the start by a ridge."""
    inputs, anchor = _with_offset(rows), np.array(start)
    weights, ridge = anchor.copy(), _RIDGE * len(rows) * np.eye(inputs.shape[1]) / 10
    for _ in range(_STEPS):
        chances = _sigmoid(inputs @ weights)
        slope = inputs.T @ (chances - right) + ridge @ (weights - anchor)
        curve = (inputs * (chances * (1 - chances))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(curve, slope)
        weights = weights - step * min(1.0, 2.0 / (np.abs(step).max() + 1e-9))
        if np.abs(step).max() < 1e-8:
            break
    return tuple(float(weight) for weight in weights)


def _with_offset(rows: Columns) -> Columns:
    return np.hstack([rows, np.ones((len(rows), 1))])


def _sigmoid(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(values, -40, 40)))
