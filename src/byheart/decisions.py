"""What the gate sees and says: routes, evidence, chances of routes, a decision, a bound on risk.

Owns these words. Knows no part that fills them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from byheart.errors import ConfigError

LEAST_RISK = 1e-6  # nobody has calibration questions for less
CONFIDENCE = 0.95  # of a promise, where none is given


class Route(enum.StrEnum):
    """Where an answer comes from."""

    MEMORY = "memory"
    RETRIEVAL = "retrieval"
    BOTH = "both"
    ABSTAIN = "abstain"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a question before anything is retrieved or generated; numbers only.

    Attributes:
        probability: That the most probable fact answers, 0 to 1.
        not_known: That no fact answers, 0 to 1.
        margin: Log-odds of the best fact above the next one or *not known*, whichever is higher; at most 12.
        cosine: Between the question's key and the best fact's, -1 to 1; 0 without a candidate.
        candidates: Facts that were weighed.
        cited: Whether there are words to read beside the best fact: its passage, or its evidence in the ledger.
        known_terms: Share of the question's terms that the corpus holds, by inverse document frequency, 0 to 1.
        terms: Terms of the question.
        is_claim: Whether it is a claim.
    """

    probability: float
    not_known: float
    margin: float
    cosine: float
    candidates: int
    cited: bool
    known_terms: float
    terms: int
    is_claim: bool = False


@dataclass(frozen=True, slots=True)
class Chance:
    """How likely a route is to be right.

    Attributes:
        route: The route.
        probability: Calibrated, 0 to 1.
        cost: In retrievals.
    """

    route: Route
    probability: float
    cost: float


@dataclass(frozen=True, slots=True)
class RiskBound:
    """What is promised of answers from memory, and on what it rests.

    Attributes:
        alpha: Largest share of memory's answers that may be wrong.
        delta: Probability that the promise does not hold, over the draw of the calibration questions.
        n: Calibration questions that memory would have answered.
        wrong: How many of these it would have answered wrongly.
        upper: Upper bound of its risk at confidence 1 - delta; never above alpha.
        threshold: Least probability at which memory answers.
    """

    alpha: float
    delta: float
    n: int
    wrong: int
    upper: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Memory and a passage that was read say different things.

    Attributes:
        memory: What memory recalled.
        passage: What was read in the passage.
        used: Which of the two is the answer: memory or retrieval.
        learned_at: When memory's fact was last changed, UTC, ISO 8601.
    """

    memory: str
    passage: str
    used: Route
    learned_at: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Which way a question goes.

    Attributes:
        route: The way.
        chances: All routes that were weighed, as `Route` lists them.
        bound: What is promised of memory's answers, None where no risk was asked for.
    """

    route: Route
    chances: tuple[Chance, ...]
    bound: RiskBound | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a user asks of the gate.

    Attributes:
        risk: Largest share of memory's answers that may be wrong; None to trust the gate's chances.
        confidence: That the risk is kept, over the draw of the calibration questions.
        budget: Retrievals per question at most, on average; None for no limit.

    Raises:
        ConfigError: One of them is out of range.
    """

    risk: float | None = None
    confidence: float = CONFIDENCE
    budget: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, value, such in (("risk", self.risk, 0.01), ("confidence", self.confidence, 0.95)):
            if value is not None and not LEAST_RISK <= value < 1:  # also NaN
                raise ConfigError(f"a {name} is from {LEAST_RISK} to below 1, got {value}; ask for one such as {such}")
        if self.budget is not None and not 0 <= self.budget <= 1:
            raise ConfigError(f"a budget is 0 to 1 retrievals per question, got {self.budget}; correct it")
