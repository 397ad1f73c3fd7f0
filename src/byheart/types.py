"""The words of byheart as frozen dataclasses: what travels between the parts.

Owns the shape of every value that crosses a boundary. Knows nothing of models, databases or files.
Ids are values that survive re-adding a document (`page:start-end`), never positions in a list.
"""

from __future__ import annotations

import enum
import unicodedata
from dataclasses import dataclass

from byheart.decisions import Decision, Disagreement
from byheart.decisions import Route as Route
from byheart.errors import QuestionError

MAX_QUESTION_CHARACTERS = 4_000


class Kind(enum.StrEnum):
    """What is asked: a question wants a short answer, a claim wants SUPPORTS or REFUTES."""

    QUESTION = "question"
    CLAIM = "claim"


class Verdict(enum.StrEnum):
    """The answer to a claim, spelled as in FEVER."""

    SUPPORTS = "SUPPORTS"
    REFUTES = "REFUTES"


@dataclass(frozen=True, slots=True)
class Question:
    """A user's text, checked once, here and nowhere else.

    Attributes:
        text: NFC, stripped, 1 to 4,000 characters.
        kind: Whether an answer or a verdict is wanted.
    """

    text: str
    kind: Kind = Kind.QUESTION

    @classmethod
    def parse(cls, text: str, kind: Kind = Kind.QUESTION) -> Question:
        """Return the question in `text`, normalised.

        Args:
            text: What the user typed.
            kind: A question or a claim.

        Returns:
            The checked question.

        Raises:
            QuestionError: `text` is no string, is blank, is too long, or cannot be encoded as UTF-8.
        """
        if not isinstance(text, str):
            raise QuestionError(f"a question must be a string, got {type(text).__name__}; pass its text")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise QuestionError(
                f"the question holds a lone surrogate at character {error.start}; decode the input as UTF-8"
            ) from error
        cleaned = unicodedata.normalize("NFC", text.replace("\x00", " ")).strip()
        if all(character.isspace() or unicodedata.category(character) in {"Cc", "Cf"} for character in cleaned):
            raise QuestionError(f"the question is empty, got {text!r}; ask with at least one word")
        if len(cleaned) > MAX_QUESTION_CHARACTERS:
            raise QuestionError(
                f"the question has {len(cleaned):,} characters, at most {MAX_QUESTION_CHARACTERS:,} are read; "
                "shorten it, or add the text as a document and ask about it"
            )
        return cls(cleaned, kind)


@dataclass(frozen=True, slots=True)
class Document:
    """One source text before it is split: a file, or one record of a JSONL file.

    Attributes:
        page: Id of the document, what KILT scores: a path or a record's own id.
        title: For people and for the encoder.
        text: NFC, the text that all spans count in.
        sections: Where headings and printed pages begin, in order of `start`.
        media_type: `text/markdown`, `application/pdf`, …
    """

    page: str
    title: str
    text: str
    sections: tuple[Section, ...] = ()
    media_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a document under one heading path, on one printed page.

    Attributes:
        start: First character, from 0, in the document's text.
        headings: Heading path from the outermost, without the document's title.
        sheet: Printed page from 1 (PDF), None where the format has none.
    """

    start: int
    headings: tuple[str, ...] = ()
    sheet: int | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrievable stretch of one document: `text == document.text[start:end]`.

    Attributes:
        id: `page:start-end`, survives re-adding the document.
        page: Id of the document.
        title: The document's title.
        headings: Heading path above the passage.
        text: The passage itself, NFC.
        start: First character in the document's text.
        end: One past the last character.
        sheet: Printed page from 1 (PDF), else None.
    """

    id: str
    page: str
    title: str
    headings: tuple[str, ...]
    text: str
    start: int
    end: int
    sheet: int | None = None

    @property
    def heading_path(self) -> str:
        """The title and the headings, outermost first, joined by ` > `; a repeated title is left out."""
        return " > ".join((self.title, *(h for h in self.headings if h != self.title)) if self.title else self.headings)

    @property
    def indexed_text(self) -> str:
        """What encoder and analyzer see: heading path, line break, text."""
        path = self.heading_path
        return f"{path}\n{self.text}" if path else self.text


def passage_id(page: str, start: int, end: int) -> str:
    """Return the id of the passage of `page` from character `start` up to `end`."""
    return f"{page}:{start}-{end}"


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage.

    Attributes:
        passage_id: Id of the passage.
        score: Fused score, higher is better; comparable between hits of one question only.
        lexical: BM25 score, 0 when no term is shared.
        dense: Cosine between question and passage.
    """

    passage_id: str
    score: float
    lexical: float
    dense: float


@dataclass(frozen=True, slots=True)
class Citation:
    """The exact place an answer rests on.

    Attributes:
        passage_id: Passage that was read.
        page: Document the passage belongs to.
        title: The document's title.
        start: First character of `text` in the document's text.
        end: One past the last character.
        text: The cited words, exactly as in the document.
        sheet: Printed page from 1 (PDF), else None.
    """

    passage_id: str
    page: str
    title: str
    start: int
    end: int
    text: str
    sheet: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """What a reader made of a question and its passages.

    Attributes:
        text: The answer, None when the reader found none.
        confidence: Calibrated probability that the answer is right, 0 to 1; None when the reader cannot say.
        citations: What it rests on, best first; always a subset of `used`.
        used: Ids of the passages that fitted the reader's budget, in the order given.
        prompt_tokens: Tokens read.
    """

    text: str | None
    confidence: float | None
    citations: tuple[Citation, ...] = ()
    used: tuple[str, ...] = ()
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What leaves byheart: printed by the command line, serialised by the server, scored by the evaluation.

    Attributes:
        question: The question as asked, normalised.
        text: The answer, None when byheart abstains.
        route: Where the answer comes from.
        confidence: Probability that the answer is right, None when the reader cannot say.
        citations: Sources, best first; a subset of `used`.
        hits: Ranked passages that retrieval returned.
        used: Ids of the passages the reader read.
        seconds: Seconds per step, in order.
        epoch: Epoch of the knowledge base the answer was computed in.
        prompt_tokens: Tokens the reader read.
        decision: Why this route, None where no gate was asked.
        fact_id: Fact that memory recalled, where it was part of the answer.
        disagreement: Where memory and a passage that was read say different things.
    """

    question: Question
    text: str | None
    route: Route
    confidence: float | None = None
    citations: tuple[Citation, ...] = ()
    hits: tuple[Hit, ...] = ()
    used: tuple[str, ...] = ()
    seconds: tuple[Step, ...] = ()
    epoch: int = 0
    prompt_tokens: int = 0
    decision: Decision | None = None
    fact_id: str | None = None
    disagreement: Disagreement | None = None

    @property
    def total_seconds(self) -> float:
        """Seconds over all steps."""
        return sum(step.seconds for step in self.seconds)


@dataclass(frozen=True, slots=True)
class Step:
    """How long one step of an answer took.

    Attributes:
        name: `encode`, `recall`, `gate`, `retrieve` or `read`.
        seconds: Wall-clock seconds, an even share where questions were answered in one batch.
    """

    name: str
    seconds: float


class FactState(enum.StrEnum):
    """Whether memory answers with a fact."""

    MEMORISED = "memorised"
    REFUSED = "refused"  # memory could not hold it exactly; retrieval still answers
    STALE = "stale"  # the document it came from has changed


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact comes from.

    Attributes:
        note: Who said so, or the page, as given; may be empty.
        passage_id: Passage that holds the answer, None where the fact comes from no document.
        page: Document of the passage.
        start: First character of the supporting words in the document's text.
        end: One past the last character.
    """

    note: str = ""
    passage_id: str | None = None
    page: str | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact as a user gives it, before it is learned.

    Attributes:
        question: The question, or a claim.
        answer: Short answer; SUPPORTS or REFUTES for a claim.
        paraphrases: Other ways to ask the same.
        source: A page, a passage id, or who said so; may be empty.
        evidence: Words of the page that support the answer, exactly as there; may be empty.
        id: The user's own id; made from the question where empty.
        kind: A question or a claim.
    """

    question: str
    answer: str
    paraphrases: tuple[str, ...] = ()
    source: str = ""
    evidence: str = ""
    id: str = ""
    kind: Kind = Kind.QUESTION


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact in the ledger.

    Attributes:
        id: Survives updates and restarts.
        kind: A question or a claim.
        questions: The question first, then its paraphrases; empty where texts are not kept.
        answer: The answer, None where texts are not kept.
        source: Where it comes from.
        version: 1, one more with every update.
        changed_at: UTC, ISO 8601.
        state: Whether memory answers with it.
        reason: Why it is not memorised; empty if it is.
        uses: Times it was the answer.
        evidence: The words it rests on, where they stand in no document of the knowledge base and texts are kept.
    """

    id: str
    kind: Kind
    questions: tuple[str, ...]
    answer: str | None
    source: Source
    version: int
    changed_at: str
    state: FactState
    reason: str = ""
    uses: int = 0
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class FactShare:
    """How much of a recall goes to one fact.

    Attributes:
        fact_id: Id of the fact.
        probability: That this fact answers the question, 0 to 1.
        cosine: Between the question's key and the fact's nearest key.
    """

    fact_id: str
    probability: float
    cosine: float


@dataclass(frozen=True, slots=True)
class Recall:
    """What memory alone says to a question.

    Attributes:
        question: What was asked.
        answer: Answer of the most probable fact, None where memory holds no candidate.
        probability: That the answer is right.
        not_known: Probability that no fact answers.
        shares: Candidate facts, the most probable first; with `not_known` they sum to 1.
        fact: The fact behind the answer, from the ledger.
        citations: The fact's place in its document, if it has one.
        seconds: Seconds per step.
        epoch: Epoch of the knowledge base.
    """

    question: Question
    answer: str | None
    probability: float
    not_known: float
    shares: tuple[FactShare, ...] = ()
    fact: Fact | None = None
    citations: tuple[Citation, ...] = ()
    seconds: tuple[Step, ...] = ()
    epoch: int = 0
