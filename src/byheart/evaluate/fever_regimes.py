"""Suite `fever`, the part with a memory: all evidence in the corpus, and most of it gone.

Owns which claims memory holds, which the gate learns from, and which pages go. Memory learns the memory half of the dev
claims with their verdict and evidence, while the pages are there; joint training reads that half, each claim's own fact
hidden; the gate is calibrated on another tenth, and the evaluation split is reported on, both without the few claims
that memory holds word for word. In the second regime the same pages are gone for all systems, and memory is as it was.
"""

from __future__ import annotations

from pathlib import Path

from byheart.corpus.collections import fever_documents, page_title
from byheart.corpus.datasets import Claim, fever_claims, plain
from byheart.corpus.splits import FeverSplit, fever_split, share
from byheart.evaluate import routing
from byheart.evaluate.comparison import Compared, compare
from byheart.evaluate.figures import Figure
from byheart.evaluate.routing import Request
from byheart.evaluate.session import Session
from byheart.evaluate.spares import Spares
from byheart.text.question_keys import question_key
from byheart.types import Document, Kind, NewFact, Question

GONE = 0.8  # share of the titled pages that go: on calibration claims always retrieving falls to .73 (docs/log.md)
TRAINED_ON = 600  # claims of the memory half that joint training reads
SOURCE = "FEVER"  # who said so; no page has this name


def measure_full(session: Session, spares: Spares) -> list[Figure]:
    """Return the figures with all sentences in the corpus."""
    return _regime(session, spares, "full corpus", 0.0)


def measure_incomplete(session: Session, spares: Spares) -> list[Figure]:
    """Return the figures with most of the titled pages gone."""
    return _regime(session, spares, "incomplete corpus", GONE)


def _regime(session: Session, spares: Spares, regime: str, gone: float) -> list[Figure]:
    """Return the figures of one regime.

    Args:
        session: The run; its knowledge base has all sentences and no fact.
        spares: Where knowledge bases with facts are kept.
        regime: Its name.
        gone: Share of the pages that go.

    Returns:
        What `comparison.compare` gives, and always retrieving with the facts in its corpus beside it.
    """
    held = facts(session.data)
    lost = lost_pages(session.data, gone)
    with spares.copied(session, "memory") as copied:
        copied.base.learn(held, session.progress)
        if lost:
            copied.base.remove(*lost)
        figures = compare(copied, regime, _compared(copied, held))
    with spares.copied(session, "facts-in-corpus") as copied:
        copied.base.add_documents(facts_as_documents(held), "facts", session.progress)
        if lost:
            copied.base.remove(*lost)
        return [*figures, *routing.with_facts_figures(copied, regime, _requests(copied, FeverSplit.EVALUATION))]


def facts(data: Path) -> list[NewFact]:
    """Return the memory half of the dev claims as facts, each with its evidence."""
    return [
        NewFact(
            question=plain(claim.claim),
            answer=claim.verdict.value,
            source=SOURCE,
            evidence=" ".join(claim.evidence),
            id=f"fever-{claim.id}",
            kind=Kind.CLAIM,
        )
        for claim in _claims(data, FeverSplit.MEMORY)
    ]


def facts_as_documents(held: list[NewFact]) -> list[Document]:
    """Return facts as documents: the claim, its verdict and its evidence, as a corpus could hold them."""
    return [Document(fact.id, "", f"{fact.question} ({fact.answer}) {fact.evidence}") for fact in held]


def lost_pages(data: Path, gone: float) -> list[str]:
    """Return the documents of a share of the pages, by the hash of their title; untitled sentences stay."""
    documents = (document.page for document in fever_documents(data))
    return [page for page in documents if (name := page_title(page)) != "untitled" and share(f"page/{name}") < gone]


def _compared(session: Session, held: list[NewFact]) -> Compared:
    trained = _requests(session, FeverSplit.MEMORY)[:TRAINED_ON]
    return Compared(
        facts=held,
        trained=trained,
        calibration=_requests(session, FeverSplit.CALIBRATION),
        requests=_requests(session, FeverSplit.EVALUATION),
        settings={"train.leave_one_out": 1.0},
    )


def _requests(session: Session, split: FeverSplit) -> list[Request]:
    return [
        Request(claim.id, "claim", Question.parse(plain(claim.claim), Kind.CLAIM), (claim.verdict.value,))
        for claim in _claims(session.data, split)[: session.limit]
    ]


def _claims(data: Path, split: FeverSplit) -> list[Claim]:
    """Return the claims of a split; what memory learns word for word, under another id, is in no other split."""
    claims = fever_claims(data)
    learned = {_key(claim) for claim in claims if fever_split(claim.id) is FeverSplit.MEMORY}
    found = [claim for claim in claims if fever_split(claim.id) is split]
    return found if split is FeverSplit.MEMORY else [claim for claim in found if _key(claim) not in learned]


def _key(claim: Claim) -> str:
    return question_key(plain(claim.claim))
