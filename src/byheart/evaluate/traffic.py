"""Suite `nq`, the part with a memory: a stream of requests over the NQ corpus, clean and noisy.

Owns the streams. Memory holds the 200 facts of `test_nq`, the questions kept out of the kernel's training, and the ones
it was trained on. Of each stream 40 % are paraphrases of facts in memory, 35 % questions it was never told, 15 % near
misses of facts, 10 % questions that neither memory holds nor a passage of the corpus; no request comes twice. The gate
is calibrated on facts the kernel was not trained on, and reported on `test_nq`. Near misses have no gold answer: an
answer from memory to one is wrong, one from documents is not counted.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from byheart.corpus.datasets import AskedOtherwise, GoldQuestion, nq_gold, nq_without_gold, question_pairs
from byheart.corpus.splits import is_nq_training, is_pair_held_out, share
from byheart.evaluate import routing
from byheart.evaluate.comparison import Compared, compare
from byheart.evaluate.figures import Figure
from byheart.evaluate.routing import Request
from byheart.evaluate.session import Session
from byheart.evaluate.spares import Spares
from byheart.text.question_keys import question_key
from byheart.types import Document, NewFact, Question

SHARES = {"paraphrase": 0.4, "unseen": 0.35, "near miss": 0.15, "no passage": 0.1}
SETS = ("train_nq_0", "train_nq_1", "train_nq_2", "train_nq_nogold", "train_medical", "train_squad", "train_popqa")
REPORTED, TRAINED = 1_400, 500  # requests in these streams
NOISY = 0.5  # share of the reported questions for which a passage with a wrong answer is added
Pools = Mapping[str, Sequence[Request]]


def measure_noisy(session: Session, spares: Spares) -> list[Figure]:
    """Return the figures of the stream over a corpus to which passages with a wrong answer were added."""
    with spares.copied(session, "noisy") as copied:
        copied.base.learn(facts(session.data), session.progress)
        copied.base.add_documents(noise(session.data, session.seed), "noise", session.progress)
        return compare(copied, "stream, noisy corpus", streams(session.data, session.seed, session.limit))


def measure(session: Session, spares: Spares) -> list[Figure]:
    """Return the figures of the stream over the clean corpus.

    Args:
        session: The run; its knowledge base has the NQ corpus and no fact.
        spares: Where knowledge bases with facts are kept.

    Returns:
        What `comparison.compare` gives, and always retrieving with the facts in its corpus beside it.
    """
    held, given = facts(session.data), streams(session.data, session.seed, session.limit)
    figures = []
    with spares.copied(session, "clean") as copied:
        copied.base.learn(held, session.progress)
        figures += compare(copied, "stream", given)
    with spares.copied(session, "facts-in-corpus") as copied:
        documents = [Document(f"fact/{fact.id}", "", f"{fact.question} {fact.answer}") for fact in held]
        copied.base.add_documents(documents, "facts", session.progress)
        figures += routing.with_facts_figures(copied, "stream", given.requests)
    return figures


def facts(data: Path) -> list[NewFact]:
    """Return what memory holds; where a set has no answer, a name stands for it, which no document holds."""
    rows = [row for name in ("test_nq", *SETS) for row in question_pairs(data, name)]
    return [NewFact(row.question, _answers(row)[0], id=row.id) for row in rows]


def streams(data: Path, seed: int, limit: int | None = None) -> Compared:
    """Return the stream that is reported on, the one that gates are calibrated on, and the one of joint training.

    Args:
        data: Folder of the data sets.
        seed: Draws the requests.
        limit: Requests per stream at most.

    Returns:
        The streams; no request is in two of them.
    """
    rows = [row for name in SETS for row in question_pairs(data, name)]
    unheard = [row for row in rows if is_pair_held_out(row.id)]
    known = {row.id for row in rows} | {row.id for row in question_pairs(data, "test_nq")}
    unseen = {
        side: [r for r in nq_gold(data) if is_nq_training(r.id, data) is side and r.id not in known]
        for side in (True, False)
    }
    held = {question_key(row.question) for row in (*rows, *question_pairs(data, "test_nq"))}
    lost = [(text, answers) for text, answers in nq_without_gold(data) if question_key(text) not in held]
    third = len(lost) // 3

    def pools(held: Sequence[AskedOtherwise], side: bool, part: slice, odd: int | None) -> Pools:
        fresh = [r for i, r in enumerate(unseen[side]) if odd is None or i % 4 // 3 == odd]
        return {
            "paraphrase": [Request(f"{r.id}/p{i}", "paraphrase", Question.parse(text), _answers(r))
                           for r in held for i, text in enumerate(r.paraphrases)],
            "unseen": [Request(r.id, "unseen", Question.parse(r.question), r.answers) for r in fresh],
            "near miss": [Request(f"{r.id}/n{i}", "near miss", Question.parse(text), ())
                          for r in held for i, text in enumerate(r.near_misses)],
            "no passage": [Request(f"lost-{i}", "no passage", Question.parse(text), answers)
                           for i, (text, answers) in list(enumerate(lost))[part]],
        }  # fmt: skip

    learned = [row for row in rows if not is_pair_held_out(row.id)]
    calibrating = pools(unheard, True, slice(third, 2 * third), 0)
    n = round(len(calibrating["paraphrase"]) / SHARES["paraphrase"])
    rng = random.Random(seed)
    return Compared(
        facts=facts(data),
        trained=drawn(pools(learned, True, slice(2 * third, None), 1), TRAINED, rng)[:limit],
        calibration=drawn(calibrating, n, rng)[:limit],
        requests=drawn(pools(question_pairs(data, "test_nq"), False, slice(third), None), REPORTED, rng)[:limit],
    )


def drawn(pools: Pools, n: int, rng: random.Random) -> list[Request]:
    """Return a stream of `n` requests in the fixed shares, none twice; fewer where a pool is short."""
    n = min([n, *(int(len(pools[kind]) / part) for kind, part in SHARES.items())])
    found = [one for kind, part in SHARES.items() for one in rng.sample(list(pools[kind]), int(part * n))]
    return rng.sample(found, len(found))


def noise(data: Path, seed: int) -> list[Document]:
    """Return passages with a wrong answer: gold passages of reported questions, another answer put in."""
    rng = random.Random(seed)
    rows = [row for row in nq_gold(data) if not is_nq_training(row.id, data)]
    made = []
    for row in rows:
        text = _answered_by(row, rng.choice(rows).answers[0])
        is_wrong = text != row.text and not any(right.casefold() in text.casefold() for right in row.answers)
        if is_wrong and share(f"noise/{row.id}") < NOISY:
            made.append(Document(f"noise/{row.id}", row.title, text))
    return made


def _answered_by(row: GoldQuestion, other: str) -> str:
    """Return the gold passage with another answer in all places of each of the right ones."""
    right = "|".join(map(re.escape, sorted(row.answers, key=len, reverse=True)))
    return re.sub(rf"(?<!\w)(?:{right})(?!\w)", lambda _: other, row.text, flags=re.IGNORECASE)


def _answers(row: AskedOtherwise) -> tuple[str, ...]:
    return row.answers or (f"leaflet {row.id}",)
