"""What the compact reader learns from: questions and claims beside passages, with the right answer marked.

Owns how each public data set becomes examples. Questions get a passage that answers and, apart from it, one that
retrieval confuses with it and that does not answer; claims get the sentences that retrieval returns, as in use.
Knows no network. Nothing of a reporting split is read: of NQ the training half, of FEVER the test file's claims.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byheart.corpus.datasets import (
    fever_sentences,
    fever_training_claims,
    fool_me_twice,
    medquad,
    multihop_training,
    nq_gold,
    nq_passages,
    pubmedqa,
    squad,
)
from byheart.corpus.splits import is_nq_training
from byheart.interfaces import Floats
from byheart.reader.windows import AnswerKind
from byheart.reader.wording import occurrences
from byheart.types import Kind, Passage, Question, Verdict, passage_id

Embed = Callable[[str, Sequence[str]], Floats]
HELD_OUT = 12  # one question in twelve is kept for calibration
SQUAD_SHARE = 0.5  # of SQuAD per epoch, another half each time: it is by far the largest set
FADE = 0.25
MAX_WORDS = 100  # longer contexts are cut to this many words around the answer, as passages are in use


@dataclass(frozen=True, slots=True)
class Span:
    """A right answer's place: character `start` to `end` of passage number `passage`."""

    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Example:
    """One row to learn from.

    Attributes:
        source: Data set.
        question: Question or claim.
        passages: What is read beside it.
        kind: The right kind of answer.
        spans: Right spans: the answer, or a claim's evidence. Empty where there is none.
        answers: Accepted answers, for calibration.
    """

    source: str
    question: Question
    passages: tuple[Passage, ...]
    kind: AnswerKind
    spans: tuple[Span, ...] = ()
    answers: tuple[str, ...] = ()


def is_held_out(text: str) -> bool:
    """Return whether a question is kept for calibration: one in twelve, by hash."""
    return hashlib.sha256(text.encode()).digest()[0] % HELD_OUT == 0


def passage_of(title: str, text: str) -> Passage:
    """Return a passage that is its own document."""
    return Passage(passage_id(title, 0, len(text)), title, title, (), text, 0, len(text))


def answerable(source: str, question: str, passage: Passage, answers: Sequence[str]) -> Example | None:
    """Return the example of a passage that holds an answer; None when it holds none."""
    spans = tuple(Span(0, *span) for answer in answers for span in occurrences(answer, passage.text))
    if not spans:
        return None
    return Example(source, Question.parse(question), (passage,), AnswerKind.SPAN, spans, tuple(answers))


def unanswerable(source: str, question: str, passage: Passage) -> Example:
    """Return the example of a passage that does not answer."""
    return Example(source, Question.parse(question), (passage,), AnswerKind.NONE)


def around(text: str, start: int, rng: random.Random) -> tuple[str, int]:
    """Return about `MAX_WORDS` words of a text around a character, and the number of characters left out before."""
    starts = [0, *(i + 1 for i, c in enumerate(text) if c == " ")]
    if len(starts) <= MAX_WORDS:
        return text, 0
    word = sum(1 for s in starts if s <= start) - 1
    first = max(0, min(word - rng.randrange(10, MAX_WORDS - 25), len(starts) - MAX_WORDS))
    last = starts[first + MAX_WORDS] - 1 if first + MAX_WORDS < len(starts) else len(text)
    return text[starts[first] : last], starts[first]


def squad_examples(data: Path, rng: random.Random, share: float) -> Iterable[Example]:
    """Return a share of SQuAD's questions with their passage, a fifth of these with another one of the article, too."""
    articles: dict[str, list[str]] = {}
    rows = squad(data)
    for row in rows:
        articles.setdefault(row.title, []).append(row.context)
    for row in rows:
        for asked in (q for q in row.questions if rng.random() < share):
            place = row.context.find(asked.answer)
            text, _ = around(row.context, max(place, 0), rng)
            yield from _maybe(answerable("squad", asked.question, passage_of(row.title, text), [asked.answer]))
            other = rng.choice(articles[row.title])
            if rng.random() < 0.2 and not occurrences(asked.answer, other):
                text, _ = around(other, rng.randrange(len(other)), rng)
                yield unanswerable("squad", asked.question, passage_of(row.title, text))


def nq_examples(data: Path, embed: Embed, rng: random.Random) -> Iterable[Example]:
    """Return the training half of NQ: the gold passage, and two of the nearest twenty that hold no answer."""
    rows = [row for row in nq_gold(data) if is_nq_training(row.id, data)]
    passages = [passage_of(found.title, found.text) for found in nq_passages(data)]
    near = _nearest(embed, "nq", [row.question for row in rows], [p.indexed_text for p in passages], 20)
    for row, candidates in zip(rows, near, strict=True):
        yield from _maybe(answerable("nq", row.question, passage_of(row.title, row.text), row.answers))
        wrong = [passages[i] for i in candidates if not any(occurrences(a, passages[i].text) for a in row.answers)]
        for passage in rng.sample(wrong[:8], min(2, len(wrong[:8]))):
            yield unanswerable("nq", row.question, passage)


def multihop_examples(data: Path, rng: random.Random) -> Iterable[Example]:
    """Return HotpotQA's and 2Wiki's training questions: spans in supporting paragraphs, others as misses."""
    for row in multihop_training(data):
        support = [passage_of(p.title, p.text) for p in row.paragraphs if p.is_supporting]
        answer = row.answers[0]
        if answer.lower() in {"yes", "no"}:
            continue
        for passage in support:
            yield from _maybe(answerable("multihop", row.question, passage, row.answers))
        wrong = [p for p in row.paragraphs if not p.is_supporting and not occurrences(answer, p.text)]
        for paragraph in rng.sample(wrong, min(1, len(wrong))):
            yield unanswerable("multihop", row.question, passage_of(paragraph.title, paragraph.text))


def fever_examples(data: Path, embed: Embed, rng: random.Random) -> Iterable[Example]:
    """Return claims beside the three or five sentences nearest to them; one in ten stands alone (closed book)."""
    rows, sentences = fever_training_claims(data), fever_sentences(data)
    texts = [sentence.text for sentence in sentences]
    near = _nearest(embed, "fever", [row.claim for row in rows], texts, 5)
    for row, candidates in zip(rows, near, strict=True):
        shown = [texts[i] for i in candidates[: rng.choice((3, 5))]]
        gold = [text for text in row.evidence if text in shown]
        if not gold and rng.random() < 0.5:
            shown[-1] = rng.choice(row.evidence)
        if rng.random() < 0.1:
            shown = []
        yield claim_example("fever", row.claim, row.verdict, shown, row.evidence)


def fool_me_twice_examples(data: Path) -> Iterable[Example]:
    """Return players' claims, written to be hard, beside their gold evidence."""
    for row in fool_me_twice(data):
        yield claim_example("fool_me_twice", row.claim, row.verdict, row.evidence, row.evidence)


def pubmedqa_examples(data: Path) -> Iterable[Example]:
    """Return yes/no questions beside the last paragraphs of their abstract."""
    kinds = {"yes": AnswerKind.YES, "no": AnswerKind.NO, "maybe": AnswerKind.NONE}
    for row in pubmedqa(data):
        text = " ".join(" ".join(row.contexts).split()[-MAX_WORDS * 3 // 2 :])
        yield Example("pubmedqa", Question.parse(row.question), (passage_of("", text),), kinds[row.decision])


def medquad_examples(data: Path, rng: random.Random, n: int = 700) -> Iterable[Example]:
    """Return medical questions beside their answer, of which the first sentence is right, and beside another's."""
    rows = rng.sample(medquad(data), n)
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        first = row.answer.split(". ")[0].strip()
        text, _ = around(row.answer, 0, rng)
        if 3 <= len(first.split()) <= 25:
            yield from _maybe(answerable("medquad", row.question, passage_of(row.focus, text), [first]))
        if other.focus != row.focus:
            yield unanswerable("medquad", row.question, passage_of(other.focus, around(other.answer, 0, rng)[0]))


def reader_examples(data: Path, embed: Embed, seed: int, epoch: int = 0) -> list[Example]:
    """Return all examples of one pass over the data.

    Args:
        data: Folder of the data sets.
        embed: Vectors of texts, cached under a name; shape `batch width`.
        seed: Chooses negatives, cuts and counts; another seed per epoch gives other ones.
        epoch: Number of the pass, from 0. Sets that do not look like use fade: a quarter of the pass before.

    Returns:
        The examples, set by set.
    """
    rng = random.Random(seed)
    from_afar = [
        *squad_examples(data, rng, SQUAD_SHARE),
        *multihop_examples(data, rng),
        *fool_me_twice_examples(data),
        *pubmedqa_examples(data),
        *medquad_examples(data, rng),
    ]
    return [
        *(example for example in from_afar if rng.random() < FADE**epoch),
        *nq_examples(data, embed, rng),
        *fever_examples(data, embed, rng),
    ]


def claim_examples(data: Path, embed: Embed, seed: int) -> list[Example]:
    """Return the examples of the last stage: every claim once more, and some questions so that spans are not forgotten.

    Args:
        data: Folder of the data sets.
        embed: Vectors of texts, cached under a name; shape `batch width`.
        seed: Chooses how many sentences are shown, and which questions.

    Returns:
        The examples, set by set.
    """
    rng = random.Random(seed - 1)
    questions = [example for example in nq_examples(data, embed, rng) if rng.random() < FADE]
    return [*fever_examples(data, embed, rng), *fool_me_twice_examples(data), *questions]


def claim_example(source: str, claim: str, verdict: Verdict, shown: Sequence[str], gold: Sequence[str]) -> Example:
    """Return the example of a claim beside texts; those among them that are evidence are its spans."""
    kind = AnswerKind.YES if verdict is Verdict.SUPPORTS else AnswerKind.NO
    spans = tuple(Span(i, 0, len(text)) for i, text in enumerate(shown) if text in gold)
    passages = tuple(passage_of("", text) for text in shown)
    return Example(source, Question.parse(claim, Kind.CLAIM), passages, kind, spans, (verdict.value,))


def _nearest(embed: Embed, name: str, queries: Sequence[str], texts: Sequence[str], k: int) -> list[list[int]]:
    """Return per query the positions of the `k` texts nearest by cosine, nearest first."""
    cosines = embed(f"{name}.queries", queries) @ embed(f"{name}.texts", texts).T
    top = np.argpartition(-cosines, k, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(cosines, top, axis=1), axis=1)
    return [[int(i) for i in row] for row in np.take_along_axis(top, order, axis=1)]


def _maybe(example: Example | None) -> tuple[Example, ...]:
    return () if example is None else (example,)
