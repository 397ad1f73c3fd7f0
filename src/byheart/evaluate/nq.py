"""Suite `nq`: Natural Questions over 33.7 k passages.

Owns what is reported of it. The fusion weight is fitted on the training half, so `reporting` is the split to quote;
`all` is there to compare with figures of others on all 2,655 questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from byheart.corpus.collections import WHOLE, nq_documents, page_title, whole_passage_id
from byheart.corpus.splits import is_nq_training
from byheart.evaluate.bases import Corpus
from byheart.evaluate.datasets import Task, nq_tasks
from byheart.evaluate.figures import Figure, Subject, cost_figures, score_columns, timing_figures, trust_figures
from byheart.evaluate.measures import normalised, score
from byheart.evaluate.retrieval import ENGINES, Rankings, rank, recall_figures
from byheart.evaluate.session import Outcome, Session, ask, clock
from byheart.types import Document

KS = (1, 5, 20)
TIMED = 200
SYSTEMS = {"always-retrieve": False, "closed-book": True}


def corpus(data: Path) -> Corpus:
    """Return the suite's documents, and the training questions that the fusion weight is fitted on."""
    documents = nq_documents(data)
    by_page = {document.page: document for document in documents}
    training = [task for task in nq_tasks(data, documents) if is_nq_training(task.id, data)]
    passages = [whole_passage_id(by_page[next(iter(task.sources))]) for task in training]
    return Corpus("nq", documents, WHOLE, ([task.question for task in training], passages))


def measure(session: Session) -> list[Figure]:
    """Return the suite's figures.

    Args:
        session: The run.

    Returns:
        Recall of three retrievers on all questions and on those for reporting; answers, cost, trust and seconds of
        always-retrieve and closed-book on those for reporting.
    """
    documents = nq_documents(session.data)
    tasks = nq_tasks(session.data, documents)
    splits = {
        "all": session.limited(tasks),
        "reporting": session.limited([task for task in tasks if not is_nq_training(task.id, session.data)]),
    }
    rankings = rank(session, [task for split in splits.values() for task in split], max(KS))
    figures = []
    for split, asked in splits.items():
        figures += recall_figures(session, split, asked, rankings, KS)
        figures += _answer_recall_figures(session, (split, asked), rankings, documents)
    return figures + _answer_figures(session, splits["reporting"])


def _answer_recall_figures(
    session: Session, split: tuple[str, Sequence[Task]], rankings: Rankings, documents: Sequence[Document]
) -> list[Figure]:
    """Return recall of any passage that holds an answer: others than the gold one do too."""
    name, tasks = split
    held = {document.page: f" {normalised(document.text)} " for document in documents}
    figures = []
    for engine in ENGINES:
        ranks = [_rank(task, ranked, held) for task, ranked in zip(tasks, rankings.of(engine, tasks), strict=True)]
        columns = {f"answer_recall@{k}": [float(rank < k) for rank in ranks] for k in KS}
        figures += Subject(session, name, engine).means(columns)
    return figures


def _rank(task: Task, ranked: Sequence[str], held: dict[str, str]) -> int:
    """Return the place, from 0, of the first document that holds an answer; behind all of them if none does."""
    answers = [f" {normalised(answer)} " for answer in task.gold.answers if normalised(answer)]
    places = (place for place, page in enumerate(ranked) if any(answer in held[page] for answer in answers))
    return next(places, max(KS))


def _answer_figures(session: Session, tasks: Sequence[Task]) -> list[Figure]:
    outcomes = {system: ask(session, system, tasks, closed_book=closed) for system, closed in SYSTEMS.items()}
    columns = {system: _columns(tasks, found) for system, found in outcomes.items()}
    figures = []
    for system, closed in SYSTEMS.items():
        subject = Subject(session, "reporting", system)
        figures += subject.means(columns[system])
        figures += trust_figures(subject, outcomes[system], columns[system]["em"])
        figures += cost_figures(subject, outcomes[system])
        figures += timing_figures(subject, clock(session, tasks[:TIMED], closed_book=closed))
    lead, other = SYSTEMS
    pair = (columns[lead]["em"], columns[other]["em"])
    return [*figures, Subject(session, "reporting", lead).lead("em", pair, other)]


def _columns(tasks: Sequence[Task], outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    pairs = zip(tasks, outcomes, strict=True)
    return score_columns([score(task.gold, outcome.guess(page_title)) for task, outcome in pairs])
