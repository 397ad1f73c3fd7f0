"""What the memory's kernel learns from: a question beside a fact, and whether the fact answers it.

Owns how public data become pairs. Half of them are *leave-one-out*: the question's own fact is hidden, and what stands
beside it is a near miss written by hand, made from it, or a nearest neighbour among the other facts. Knows no network.
Nothing of `test_nq`, of the held-out ParaRel facts and patterns, or of the other half of the support desk is read.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byheart.corpus.datasets import bank_queries, medquad_types, nq_gold, popqa, question_pairs, records, squad
from byheart.corpus.pararel import Statement, training_statements
from byheart.corpus.splits import is_nq_training, is_pair_held_out, is_support_training
from byheart.interfaces import Floats
from byheart.train.desk_questions import matter, near_misses
from byheart.train.question_templates import MEDICAL, POPQA
from byheart.train.rewording import cased, clumsy, names_in, neighbour, swapped

CANDIDATE_SHARE = 0.3  # more of them, and near misses are unlearned
DESK = 1200  # made-up facts of a help desk in one pass
BANK = 1500  # queries of bank customers in one pass
STATEMENTS = 1500  # ParaRel facts in one pass
Embed = Callable[[str, Sequence[str]], Floats]
WRITTEN = ("train_nq_0", "train_nq_1", "train_nq_2", "train_nq_nogold", "train_medical", "train_squad", "train_popqa")


@dataclass(frozen=True, slots=True)
class Pair:
    """A question beside a fact.

    Attributes:
        query: What is asked.
        question: The fact's question.
        answer: The fact's answer, empty where the set has none.
        is_same: Whether the fact answers the question.
        source: Data set.
    """

    query: str
    question: str
    answer: str
    is_same: bool
    source: str


def held_out_pairs(data: Path, names: Sequence[str] = WRITTEN) -> list[Pair]:
    """Return the pairs of the questions held out: each paraphrase and each near miss beside the question itself."""
    rows = [(name, row) for name in names for row in question_pairs(data, name) if is_pair_held_out(row.id)]
    return [
        Pair(query, row.question, row.answers[0] if row.answers else "", query in row.paraphrases, name)
        for name, row in rows
        for query in (*row.paraphrases, *row.near_misses)
    ]


def written_pairs(data: Path, names: Sequence[str], rng: random.Random) -> Iterator[Pair]:
    """Yield pairs of the questions with hand-written paraphrases and near misses, but for those held out."""
    for name in names:
        for row in question_pairs(data, name):
            if is_pair_held_out(row.id):
                continue
            answer = rng.choice(row.answers) if row.answers else ""
            asked = (row.question, *row.paraphrases)
            for query in row.paraphrases:
                yield Pair(query, row.question, answer, True, name)
                other = rng.choice([q for q in asked if q != query])
                yield Pair(query, other, answer, True, name)
            yield Pair(row.question, rng.choice(row.paraphrases), answer, True, name)
            yield Pair(clumsy(rng.choice(asked), rng), row.question, answer, True, name)
            for miss in row.near_misses:
                yield Pair(miss, row.question, answer, False, name)
                yield Pair(miss, rng.choice(row.paraphrases), answer, False, name)
                yield Pair(rng.choice(asked), miss, "", False, name)


def candidate_pairs(data: Path, names: Sequence[str], embed: Embed, rng: random.Random) -> Iterator[Pair]:
    """Yield what a memory without the right fact would offer: questions beside the nearest of all other facts.

    Args:
        data: Folder of the data sets.
        names: The sets of hand-written pairs.
        embed: Vectors of texts, cached under a name; shape `batch width`.
        rng: Chooses.

    Yields:
        Wrong pairs: for each question, a paraphrase and a near miss of it, two of the six nearest facts.
    """
    rows = [row for name in names for row in question_pairs(data, name) if not is_pair_held_out(row.id)]
    vectors = embed("memory.facts", [row.question for row in rows])
    asked = [(i, text) for i, row in enumerate(rows) for text in (row.question, *row.paraphrases, *row.near_misses)]
    queries = embed("memory.asked", [text for _, text in asked])
    of_row: dict[int, list[int]] = defaultdict(list)
    for place, (i, _) in enumerate(asked):
        of_row[i].append(place)
    for i, places in of_row.items():
        for place in {places[0], rng.choice(places[1:]), places[-1]}:
            cosines = vectors @ queries[place]
            cosines[i] = -1
            for j in rng.sample(np.argsort(-cosines)[:6].tolist(), 2):
                answer = rng.choice(rows[j].answers) if rows[j].answers else ""
                yield Pair(asked[place][1], rows[j].question, answer, False, "candidates")


def template_pairs(
    facts: Sequence[tuple[str, str, str]],
    templates: Mapping[str, tuple[str, ...]],
    n: int,
    rng: random.Random,
    source: str,
) -> Iterator[Pair]:
    """Yield pairs of facts given as relation, subject and answer: other wordings, other relations, other subjects.

    Args:
        facts: Relation, subject, answer.
        templates: Wordings per relation.
        n: Facts to use.
        rng: Chooses.
        source: Name of the set.

    Yields:
        About two right and two wrong pairs per fact.
    """
    by_relation: dict[str, list[str]] = defaultdict(list)
    of_subject: dict[str, set[str]] = defaultdict(set)
    for relation, subject, _ in facts:
        by_relation[relation].append(subject)
        of_subject[subject].add(relation)
    neighbours = {relation: sorted(subjects) for relation, subjects in by_relation.items()}
    for relation, subject, answer in rng.sample(list(facts), min(n, len(facts))):
        if relation not in templates:
            continue
        ways = templates[relation]
        first, second = rng.sample(ways, 2)
        yield Pair(cased(second.format(subject), rng), first.format(subject), answer, True, source)
        others = [r for r in templates if r != relation]
        near = rng.choice(sorted(of_subject[subject] - {relation} & set(others)) or others)
        if near in templates:
            yield Pair(
                cased(rng.choice(templates[near]).format(subject), rng), first.format(subject), answer, False, source
            )
        other = neighbour(neighbours[relation], subject, rng)
        if other is not None:
            way = rng.choice((first, second))
            yield Pair(cased(way.format(other), rng), first.format(subject), answer, False, source)


def statement_pairs(statements: Sequence[Statement], embed: Embed, n: int, rng: random.Random) -> Iterator[Pair]:
    """Yield pairs of ParaRel statements with the object left open.

    Args:
        statements: The facts.
        embed: Vectors of texts, cached under a name; shape `batch width`.
        n: Facts to use.
        rng: Chooses.

    Yields:
        One right pair per fact and up to three wrong ones: the subject's other relations, another subject, and one of
        the three nearest of the other facts, as a memory that lacks the fact would offer it.
    """
    by_relation: dict[str, list[Statement]] = defaultdict(list)
    by_subject: dict[str, list[Statement]] = defaultdict(list)
    for statement in statements:
        by_relation[statement.relation].append(statement)
        by_subject[statement.subject].append(statement)
    subjects = {relation: sorted({s.subject for s in found}) for relation, found in by_relation.items()}
    chosen = rng.sample(list(statements), min(n, len(statements)))
    held = [rng.choice(statement.wordings) for statement in chosen]
    asked = [rng.choice(statement.wordings) for statement in chosen]
    cosines = embed("memory.asked", asked) @ embed("memory.facts", held).T
    np.fill_diagonal(cosines, -1)
    for i, statement in enumerate(chosen):
        yield Pair(asked[i], held[i], statement.answer, True, "pararel")
        near = [s for s in by_subject[statement.subject] if s.relation != statement.relation]
        if near and rng.random() < 0.7:
            query = rng.choice(rng.choice(near).wordings)
            if query not in statement.wordings:
                yield Pair(query, held[i], statement.answer, False, "pararel")
        other = neighbour(subjects[statement.relation], statement.subject, rng)
        if other is not None:
            query = asked[i].replace(statement.subject, other)
            yield Pair(query, held[i], statement.answer, False, "pararel")
        j = rng.choice(np.argsort(-cosines[i])[:3].tolist())
        yield Pair(asked[i], held[j], chosen[j].answer, False, "pararel")


def bank_pairs(data: Path, embed: Embed, n: int, rng: random.Random) -> Iterator[Pair]:
    """Yield bank customers' queries beside another of the same intent, and beside the nearest of another intent.

    Args:
        data: Folder of the data sets.
        embed: Vectors of texts, cached under a name; shape `batch width`.
        n: Queries to use.
        rng: Chooses.

    Yields:
        One right and one wrong pair per query. Intents are coarser than questions: the right one is among the five
        nearest of its intent.
    """
    rows = bank_queries(data)
    vectors = embed("memory.bank", [text for text, _ in rows])
    intents = np.array([intent for _, intent in rows])
    for i in rng.sample(range(len(rows)), n):
        cosines = vectors @ vectors[i]
        cosines[i] = -1
        same = intents == intents[i]
        right = rng.choice(np.argsort(np.where(same, -cosines, 1))[:5].tolist())
        wrong = rng.choice(np.argsort(np.where(same, 1, -cosines))[:4].tolist())
        yield Pair(rows[i][0], rows[right][0], "", True, "bank")
        yield Pair(rows[i][0], rows[wrong][0], "", False, "bank")


def swapped_pairs(rows: Sequence[tuple[str, str]], n: int, rng: random.Random) -> Iterator[Pair]:
    """Yield questions beside themselves with one word turned into its opposite, a number or a name exchanged.

    Args:
        rows: Questions and answers.
        n: Questions to use.
        rng: Chooses.

    Yields:
        One wrong pair per question that can be changed, and the question put clumsily as a right one.
    """
    names = [name for question, _ in rows for name in names_in(question)]
    for question, answer in rng.sample(list(rows), min(n, len(rows))):
        changed = swapped(question, names, rng)
        if changed is not None:
            pair = (changed, question) if rng.random() < 0.5 else (question, changed)
            yield Pair(cased(pair[0], rng), pair[1], answer, False, "swapped")
        yield Pair(clumsy(question, rng), question, answer, True, "swapped")


def desk_pairs(n: int, rng: random.Random) -> Iterator[Pair]:
    """Yield made-up questions to a help desk beside made-up facts: two right and three wrong pairs per fact."""
    before = matter(rng)
    for _ in range(n):
        held = matter(rng)
        question, answer = held.wording(rng), held.answer(rng)
        for _ in range(2):
            query = held.wording(rng)
            yield Pair(clumsy(query, rng) if rng.random() < 0.4 else query, question, answer, True, "desk")
        for miss in near_misses(held, rng):
            yield Pair(miss.wording(rng), question, answer, False, "desk")
        yield Pair(before.wording(rng), question, answer, False, "desk")
        before = held


def support_pairs(data: Path, embed: Embed, rng: random.Random) -> Iterator[Pair]:
    """Yield the help desk's queries around the half of its facts that may be trained on.

    Args:
        data: Folder of the data sets.
        embed: Vectors of texts, cached under a name; shape `batch width`.
        rng: Chooses.

    Yields:
        Queries beside their fact; near misses beside what they miss; each query beside two of the nearest other facts.
    """
    facts = [row for row in records(data / "support/support_faq.jsonl") if is_support_training(row["id"])]
    place = {row["id"]: i for i, row in enumerate(facts)}
    rows = [
        row
        for row in records(data / "support/support_queries.jsonl")
        if is_support_training(row.get("fact") or row.get("answer_fact") or row.get("near") or row["id"])
    ]
    vectors = embed("memory.desk", [row["question"] for row in facts])
    for row, query in zip(rows, embed("memory.queries", [row["query"] for row in rows]), strict=True):
        own = row.get("fact") or row.get("answer_fact")
        pairs = [(own, True), (row.get("near"), False)]
        near = [facts[j]["id"] for j in np.argsort(-(vectors @ query))[:5] if facts[j]["id"] != own]
        pairs += [(other, False) for other in rng.sample(near, 2)]
        for fact, is_same in pairs:
            if fact in place and (is_same or fact != own):
                held = facts[place[fact]]
                yield Pair(row["query"], held["question"], held["answer"], is_same, "support")


def neighbour_pairs(
    name: str, rows: Sequence[tuple[str, str]], embed: Embed, n: int, rng: random.Random
) -> Iterator[Pair]:
    """Yield questions beside the facts nearest to them that are not their own and have another answer.

    Args:
        name: Data set, under which vectors are cached.
        rows: Questions and answers.
        embed: Vectors of texts.
        n: Questions to use.
        rng: Chooses.

    Yields:
        One wrong pair per question.
    """
    vectors = embed(f"memory.{name}", [question for question, _ in rows])
    for i in rng.sample(range(len(rows)), min(n, len(rows))):
        cosines = vectors @ vectors[i]
        cosines[i] = -1
        near = [int(j) for j in np.argsort(-cosines)[:4] if rows[j][1] != rows[i][1] and cosines[j] < 0.97]
        if near:
            j = rng.choice(near)
            yield Pair(clumsy(rows[i][0], rng), rows[j][0], rows[j][1], False, name)


def training_pairs(
    data: Path, embed: Embed, seed: int, written: Sequence[str] = WRITTEN, made_share: float = 1.0
) -> list[Pair]:
    """Return the pairs of one pass over the data.

    Args:
        data: Folder of the data sets.
        embed: Vectors of texts, cached under a name; shape `batch width`.
        seed: Chooses wordings and neighbours; another seed gives others.
        written: The sets of hand-written pairs to use, all of each.
        made_share: Share of the other pairs to use.

    Returns:
        The pairs, set by set.
    """
    rng = random.Random(seed)
    nq = [(row.question, row.answers[0]) for row in nq_gold(data) if is_nq_training(row.id, data)]
    passages = [(q.question, q.answer) for row in squad(data) for q in row.questions]
    movies = [(row.relation, row.subject, row.answer) for row in popqa(data)]
    medical = [(row.qtype, row.focus, "") for row in medquad_types(data)]
    made = [
        *template_pairs(movies, POPQA, 1000, rng, "popqa"),
        *template_pairs(medical, MEDICAL, 2500, rng, "medquad"),
        *swapped_pairs([*nq, *rng.sample(passages, 2500)], 3000, rng),
        *neighbour_pairs("nq", nq, embed, 1000, rng),
        *neighbour_pairs("squad", passages, embed, 2000, rng),
    ]
    desk = desk_pairs(DESK, rng)
    near = list(candidate_pairs(data, written, embed, rng))
    return [
        *written_pairs(data, written, rng),
        *rng.sample(near, round(CANDIDATE_SHARE * len(near))),
        *support_pairs(data, embed, rng),
        *desk,
        *statement_pairs(training_statements(data), embed, STATEMENTS, rng),
        *bank_pairs(data, embed, BANK, rng),
        *rng.sample(made, round(made_share * len(made))),
    ]
