"""The compact reader: answers, verdicts and answer probabilities from one small network, in milliseconds on a CPU.

Owns decoding, the mixture over passages and calibration. Every citation is an exact span of a passage that was read.
The probability of an answer is a mixture over passages, Σ p(passage | question) · p(answer | question, passage), with
p(passage | question) a softmax over retrieval scores. Source: Lewis et al. 2020, RAG, section 2.1 (RAG-Sequence).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from byheart.config import ReaderConfig
from byheart.errors import InputError, QuestionError, ReaderError
from byheart.interfaces import Floats, Reading
from byheart.reader.prompt import check_answers, one_passage_each
from byheart.reader.scoring import Scored, best_spans, scored_windows
from byheart.reader.windows import AnswerKind, WindowBuilder, token_spans
from byheart.reader.wording import answer_key, occurrences, whole_address
from byheart.text.models import fingerprint, model_folder
from byheart.text.tokenizer import load_tokenizer
from byheart.types import Citation, Draft, Kind, Question, Verdict

if TYPE_CHECKING:
    from byheart.reader.compact_model import CompactModel

BASE = "all-MiniLM-L6-v2"
LEAST_LOG_PROBABILITY = -20.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the network's numbers become probabilities; fitted on questions that were not trained on.

    Attributes:
        retrieval_sharpness: Multiplies retrieval scores before the softmax over passages.
        slope: Platt slope on the log-odds of an answer's share of the mixture.
        offset: Platt offset.
        claim_slope: The same for verdicts.
        claim_offset: The same for verdicts.
    """

    retrieval_sharpness: float = 10.0
    slope: float = 1.0
    offset: float = 0.0
    claim_slope: float = 1.0
    claim_offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible answer with its share of the mixture and the places it stands in, best first.

    Attributes:
        text: The answer, as written in its best place.
        probability: Share of the mixture, 0 to 1.
        places: Passage position, first character, one past the last, and share, best first.
    """

    text: str
    probability: float
    places: tuple[tuple[int, int, int, float], ...]


class CompactReader:
    """Reads with the network whose weights the package ships."""

    def __init__(self, config: ReaderConfig, weights: Path | None = None, device: str = "cpu") -> None:
        """Find the files; the network is loaded when first needed.

        Args:
            config: Longest answer and least confidence.
            weights: Weight file, the shipped one by default.
            device: torch device.
        """
        self.config = config
        self.device = device
        self.base = model_folder(BASE)
        self.builder = WindowBuilder(load_tokenizer(self.base))
        self.weights = weights or shipped_weights()

    @property
    def name(self) -> str:
        """Name of the reader, as in the configuration."""
        return "compact"

    @cached_property
    def _loaded(self) -> tuple[CompactModel, Calibration]:
        from byheart.reader.compact_model import CompactModel, load_weights

        model = CompactModel(self.base, self.device)
        notes = load_weights(self.weights, model)
        if notes.get("base_fingerprint") != fingerprint(self.base, "mean", "", ""):
            raise ReaderError(
                f"{self.weights.name} was trained on another release of {BASE} ({notes.get('base_fingerprint')!r}); "
                "install the release it names, or run: byheart train reader --data DIR"
            )
        held = notes.get("calibration")
        calibration = Calibration(**held) if isinstance(held, dict) else Calibration()
        return self._ready(model), calibration

    @cached_property
    def _claim_model(self) -> CompactModel:
        """The network for claims; the questions' own where the weight file holds no other."""
        from byheart.reader.claim_model import claim_model

        of_questions, _ = self._loaded  # which checks what the weights were trained on
        found = claim_model(self.weights, self.base, self.device, of_questions)
        return of_questions if found is None else self._ready(found)

    def _ready(self, model: CompactModel) -> CompactModel:
        from byheart.text.precision import is_half

        return (model.halve() if is_half(self.config.precision, self.device) else model).eval()

    def check(self, questions: Sequence[Question]) -> None:
        """Raise an error that names the first question which is too long for the network.

        Args:
            questions: Questions and claims that are asked together.

        Raises:
            QuestionError: A question is too long; where there are several, the error says which.
        """
        for position, question in enumerate(questions, start=1):
            try:
                self.builder.question_ids(question)
            except QuestionError as error:
                if len(questions) == 1:
                    raise
                raise QuestionError(f"question {position} of {len(questions)}: {error}") from error

    def read(self, readings: Sequence[Reading]) -> list[Draft]:
        """Return one draft per reading.

        Args:
            readings: Questions with their passages.

        Returns:
            Drafts in order; a claim's text is SUPPORTS or REFUTES, a question's is a span of a passage, yes, or no.

        Raises:
            QuestionError: A question is too long for the network.
        """
        scored = self.score_windows(readings)
        return [self._draft(reading, windows) for reading, windows in zip(readings, scored, strict=True)]

    def score(self, readings: Sequence[Reading], answers: Sequence[Sequence[str]]) -> list[Floats]:
        """Return natural-log probabilities of given answers, passage by passage.

        Args:
            readings: Questions with their passages.
            answers: Accepted answers of each question; SUPPORTS or REFUTES for a claim.

        Returns:
            One array per reading. Shape `passages answers`, without passages (closed book) `1 answers`; -20 where the
            passage does not hold the answer, and never less.

        Raises:
            InputError: There is not one list of answers per reading, an answer is blank, or a claim's is no verdict.
            QuestionError: A question is too long for the network.
        """
        check_answers(readings, answers)
        _check_verdicts(readings, answers)
        singles = [one_passage_each(reading) for reading in readings]
        windows = iter(self.score_windows([alone for of_one in singles for alone in of_one], cited=False))
        return [
            np.array([_log_probabilities(alone, next(windows), given) for alone in of_one], np.float32)
            for of_one, given in zip(singles, answers, strict=True)
        ]

    def candidates(
        self, reading: Reading, windows: Sequence[Scored], sharpness: float | None = None
    ) -> list[Candidate]:
        """Return a question's possible answers, most probable first; yes and no stand without a span.

        Args:
            reading: The question and its passages.
            windows: The network's view of it.
            sharpness: Multiplies retrieval scores, as calibrated if None.

        Returns:
            Candidates whose texts differ by more than case, articles and punctuation.
        """
        priors = _priors(reading, windows, self._loaded[1].retrieval_sharpness if sharpness is None else sharpness)
        found: dict[str, list[tuple[int, int, int, float]]] = {}
        for prior, scored in zip(priors, windows, strict=True):
            for place in best_spans(scored, self.config.max_answer_tokens):
                passage, *span, probability = place
                start, end = whole_address(reading.passages[passage].text, *span)
                text = reading.passages[passage].text[start:end]
                found.setdefault(answer_key(text), []).append((passage, start, end, prior * probability))
        spans = [_merge(reading, places) for places in found.values()]
        polar = [
            Candidate(text, float(sum(p * math.exp(s.kind[kind]) for p, s in zip(priors, windows, strict=True))), ())
            for text, kind in (("yes", AnswerKind.YES), ("no", AnswerKind.NO))
        ]
        return sorted([*spans, *polar], key=lambda c: -c.probability)

    def score_windows(self, readings: Sequence[Reading], cited: bool = True) -> list[list[Scored]]:
        """Return every window as scored: spans by the questions' network, a claim's verdict by that for claims.

        Args:
            readings: Questions and claims with their passages.
            cited: Whether a claim's spans matter; if not, the network for claims is asked alone.

        Returns:
            Per reading its windows.
        """
        built = [self.builder.build(reading) for reading in readings]
        flat = [(len(w.ids), i, j, w) for i, windows in enumerate(built) for j, w in enumerate(windows)]
        claims = [row for row in flat if readings[row[1]].question.kind is Kind.CLAIM]
        others = flat if cited else [row for row in flat if readings[row[1]].question.kind is not Kind.CLAIM]
        scored = scored_windows(self._loaded[0], others)
        if claims and not (cited and self._claim_model is self._loaded[0]):
            verdicts = scored_windows(self._claim_model, claims)  # it judges; where the evidence is, the other tells
            scored |= {at: replace(scored.get(at, one), kind=one.kind) for at, one in verdicts.items()}
        return [[scored[i, j] for j in range(len(windows))] for i, windows in enumerate(built)]

    def _draft(self, reading: Reading, windows: Sequence[Scored]) -> Draft:
        used = tuple(passage.id for passage in reading.passages)
        tokens = sum(len(scored.window.ids) for scored in windows)
        is_claim = reading.question.kind is Kind.CLAIM
        text, confidence, citations = (self._verdict if is_claim else self._answer)(reading, windows)
        if confidence < self.config.min_confidence:
            text, citations = None, ()
        return Draft(text, confidence, citations, used, tokens)

    def _answer(self, reading: Reading, windows: Sequence[Scored]) -> tuple[str | None, float, tuple[Citation, ...]]:
        candidates = self.candidates(reading, windows) if reading.passages else []
        if not candidates:
            return None, 0.0, ()
        best = candidates[0]
        places = best.places or _evidence(windows)
        if not places:  # no passage holds a word to cite
            return None, 0.0, ()
        calibration = self._loaded[1]
        confidence = _platt(best.probability, calibration.slope, calibration.offset)
        return best.text, confidence, _citations(reading, places)

    def _verdict(self, reading: Reading, windows: Sequence[Scored]) -> tuple[str | None, float, tuple[Citation, ...]]:
        calibration = self._loaded[1]
        supports = verdict_probability(windows)
        verdict = Verdict.SUPPORTS if supports >= 0.5 else Verdict.REFUTES
        share = max(supports, 1 - supports)
        confidence = _platt(share, calibration.claim_slope, calibration.claim_offset)
        return verdict.value, confidence, _citations(reading, _evidence(windows))


def shipped_weights() -> Path:
    """Return the weight file that the package ships, where `byheart train reader` writes."""
    return Path(str(resources.files("byheart.reader") / "weights" / "compact.safetensors"))


def verdict_probability(windows: Sequence[Scored]) -> float:
    """Return the probability of SUPPORTS against REFUTES; the earlier window counts where there are several.

    Args:
        windows: The windows of one claim.

    Returns:
        A number from 0 to 1.
    """
    # Later windows hold lower-ranked passages, so each weighs half of the one before.
    weights = np.array([0.5**i for i in range(len(windows))])
    odds = np.array([float(s.kind[AnswerKind.YES] - s.kind[AnswerKind.NO]) for s in windows])
    return float(1 / (1 + math.exp(-float((weights * odds).sum() / weights.sum()))))


def _priors(reading: Reading, windows: Sequence[Scored], sharpness: float) -> Floats:
    """Return p(passage | question) per window; windows of one passage share it. Shape `windows`."""
    owners = [scored.window.passages[0] for scored in windows]
    scores = np.array(reading.scores or [0.0] * len(reading.passages), np.float64) * sharpness
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    counts = np.bincount(owners, minlength=len(shares))
    priors: Floats = np.array([shares[o] / counts[o] for o in owners], np.float32)
    return priors


def _evidence(windows: Sequence[Scored]) -> tuple[tuple[int, int, int, float], ...]:
    """Return the best span of the first window that has one: what a verdict, yes or no rests on."""
    for scored in windows:
        best = best_spans(scored, len(scored.start))
        if best:
            return (best[0],)
    return ()


def _merge(reading: Reading, places: Sequence[tuple[int, int, int, float]]) -> Candidate:
    ordered = sorted(places, key=lambda place: -place[3])
    passage, start, end, _ = ordered[0]
    one_each = {place[0]: place for place in reversed(ordered)}
    kept = tuple(sorted(one_each.values(), key=lambda place: -place[3]))
    text = reading.passages[passage].text[start:end]
    return Candidate(text, min(1.0, sum(place[3] for place in ordered)), kept)


def _citations(reading: Reading, places: Sequence[tuple[int, int, int, float]]) -> tuple[Citation, ...]:
    """Return a citation per place whose share is at least a tenth of the best's."""
    kept = [place for place in places if place[3] >= 0.1 * places[0][3]]
    cited = []
    for position, start, end, _ in kept:
        passage = reading.passages[position]
        begin, finish = passage.start + start, passage.start + end
        text = passage.text[start:end]
        cited.append(Citation(passage.id, passage.page, passage.title, begin, finish, text, passage.sheet))
    return tuple(cited)


def _check_verdicts(readings: Sequence[Reading], answers: Sequence[Sequence[str]]) -> None:
    for reading, given in zip(readings, answers, strict=True):
        if reading.question.kind is Kind.CLAIM and not set(given) <= set(Verdict):
            raise InputError(f"the answers of a claim must be {' or '.join(Verdict)}, got {given!r}; spell them so")


def _log_probabilities(reading: Reading, windows: Sequence[Scored], answers: Sequence[str]) -> list[float]:
    return [max(LEAST_LOG_PROBABILITY, max(_log_probability(reading, s, a) for s in windows)) for a in answers]


def _log_probability(reading: Reading, scored: Scored, answer: str) -> float:
    if reading.question.kind is Kind.CLAIM:
        odds = float(scored.kind[AnswerKind.YES] - scored.kind[AnswerKind.NO])
        return -math.log1p(math.exp(-odds if answer == Verdict.SUPPORTS else odds))
    if answer.strip().lower() in {"yes", "no"}:
        return float(scored.kind[AnswerKind.YES if answer.strip().lower() == "yes" else AnswerKind.NO])
    text = reading.passages[0].text if reading.passages else ""
    found = token_spans(scored.window, 0, occurrences(answer, text))
    if not found:
        return LEAST_LOG_PROBABILITY
    terms = [float(scored.start[first] + scored.end[last]) for first, last in found]
    return float(scored.kind[AnswerKind.SPAN]) + float(np.logaddexp.reduce(terms))


def _platt(probability: float, slope: float, offset: float) -> float:
    clipped = min(max(probability, 1e-6), 1 - 1e-6)
    return 1 / (1 + math.exp(-(slope * math.log(clipped / (1 - clipped)) + offset)))
