"""Joint training of memory, retriever and gate on questions with answers. Read it from top to bottom.

Owns the order, the split, and what is trained: the gate's curves, the calibration of the memory's judgement, and the
query adapter. The networks behind them stay as they are, so that what they say is computed once. The objective is

    L = - log Σ_r π_r(x) · p_r(Y | x)  +  λ · Σ_r π_r(x) · cost_r  +  anchors

term by term in `losses`, with the formulas in docs/joint-training.md. A run that collapses is stopped by `monitors`,
keeps its last good state, and leaves the knowledge base as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from byheart.calibrating import LEAST_QUESTIONS as LEAST_HELD_OUT
from byheart.calibrating import calibrate
from byheart.config import TrainConfig
from byheart.decisions import Route
from byheart.errors import TrainingError
from byheart.gate.gate import ROUTES, Gate
from byheart.gate.labels import COSTS
from byheart.knowledge import KnowledgeBase
from byheart.reports import Progress, Trained, no_progress
from byheart.retrieval.adapter import QueryAdapter
from byheart.train import losses
from byheart.train.checkpoint import load_state, only_one, save_state
from byheart.train.monitors import END_LOSS, Signs, check, signs
from byheart.train.questions import Questions, laid_out
from byheart.types import Question

STATE = "joint-training.pt"
CHECK_EVERY = 10
SHARPNESS = 10.0  # of p(d | x), as in the reader's calibration
TEMPERATURE = 0.1  # of π, in probability of being right
ABSTAINING = 0.1  # the constant utility of saying nothing
DUAL_RATE = 0.02
NAMES = (*(route.value for route in ROUTES), Route.ABSTAIN.value)


@dataclass(slots=True)
class Parts:
    """What is trained.

    Attributes:
        gate: One row per route. Shape `routes columns+1`.
        calibration: Slope, offset, gap weight, as factors and a shift of what they are. Shape `3`.
        down: The adapter's A. Shape `width rank`.
        up: The adapter's B. Shape `rank width`.
        price: λ.
    """

    gate: Tensor
    calibration: Tensor
    down: Tensor
    up: Tensor
    price: float = 0.0

    def tensors(self) -> tuple[Tensor, ...]:
        """Return what has gradients."""
        return self.gate, self.calibration, self.down, self.up

    def copied(self) -> Parts:
        """Return a copy that shares nothing."""
        gate, calibration, down, up = (tensor.detach().clone() for tensor in self.tensors())
        return Parts(gate, calibration, down, up, self.price)


@dataclass(frozen=True, slots=True)
class Step:
    """One evaluation of the objective.

    Attributes:
        loss: The objective.
        likelihood: Its first term: mean -log Σ_r π_r · p_r.
        cost: Retrievals per question.
        likelihoods: log p_r(Y | x), abstain last. Shape `batch routes+1`.
        recalls: log-probability of memory's right output: the right facts, or *not known* where there is none. Shape
            `batch`.
        routes: π. Shape `batch routes+1`.
        slots: Probabilities of facts and *not known*. Shape `batch facts+1`.
        ranking: Logits of p(d | x). Shape `batch passages`.
    """

    loss: Tensor
    likelihood: Tensor
    cost: Tensor
    likelihoods: Tensor
    recalls: Tensor
    routes: Tensor
    slots: Tensor
    ranking: Tensor


def train_joint(
    kb: KnowledgeBase, questions: Sequence[Question], gold: Sequence[Sequence[str]], progress: Progress = no_progress
) -> Trained:
    """Train memory, retriever and gate of a knowledge base jointly, and put them into use, calibrated.

    Args:
        kb: The knowledge base; its settings `train.*` say how.
        questions: Questions and claims as they come in use.
        gold: Accepted answers of each; none where only abstaining is right.
        progress: Told of reading and of steps.

    Returns:
        Losses before and after, on what was trained on and on what was not.

    Raises:
        TrainingError: There are too few questions, another process is at it, or the run collapsed; the knowledge base
            is as it was.
        QuestionError: The reader cannot take a question; the error says which.
    """
    with only_one(kb.path):
        return _trained(kb, questions, gold, progress)


def _trained(
    kb: KnowledgeBase, questions: Sequence[Question], gold: Sequence[Sequence[str]], progress: Progress
) -> Trained:
    """Train, as `train_joint` says, while no other process does."""
    settings, state = kb.config.train, kb.path / STATE
    kb.asking.undo_install()  # of a run that was killed before it was calibrated
    answered = [i for i, given in enumerate(gold) if given]
    held = [_is_held_out(questions[i].text) for i in answered]
    rest = [i for i, question in enumerate(questions) if _is_held_out(question.text)]
    if len(rest) < LEAST_HELD_OUT or not any(held) or all(held) or not kb.facts(limit=1):
        raise TrainingError(
            f"joint training needs facts in memory and about {4 * LEAST_HELD_OUT} questions with answers, of which "
            f"{LEAST_HELD_OUT} are held out; got {len(answered)} of {len(questions)} with answers, {len(rest)} held "
            "out by their texts; pass more, and different ones, or learn facts first"
        )
    if not kb.config.ledger.text:
        raise TrainingError(
            "joint training compares answers with those of facts, whose texts this knowledge base does not keep "
            "(ledger.text = false); use byheart calibrate, or a knowledge base that keeps them"
        )
    kb.asking.check(questions)
    hide = (np.random.default_rng(settings.seed).random(len(answered)) < settings.leave_one_out).tolist()
    offers = kb.asking.offers([questions[i] for i in answered], [gold[i] for i in answered], hide, progress)
    weight = kb.asking.dense_weight()
    kept = [laid_out([o for o, flag in zip(offers, held, strict=True) if flag is side]) for side in (False, True)]
    start = starting_parts(kept[0].queries.shape[1], settings, kb.asking.adapter())
    parts = fit(start, kept[0], settings, weight, state, progress)
    parts, undone = better(start, parts, *(objective(p, kept[1], settings, weight, None) for p in (start, parts)))
    before, after = (objective(p, kept[0], settings, weight, None) for p in (start, parts))
    unseen = [float(objective(p, kept[1], settings, weight, None).likelihood) for p in (start, parts)]
    _install(kb, parts, settings)
    try:
        chosen_from = 2 if settings.memory else 1  # memory's calibration as it was, and as trained
        asked = [questions[i] for i in rest], [gold[i] for i in rest]
        calibrated = calibrate(kb.asking, *asked, progress, chosen_from)
    except BaseException:
        kb.asking.undo_install()
        raise
    state.unlink(missing_ok=True)
    return Trained(
        n=len(answered) - sum(held),
        held_out=sum(held),
        unanswered=len(questions) - len(answered),
        loss_before=float(before.likelihood),
        loss_after=float(after.likelihood),
        held_out_before=unseen[0],
        held_out_after=unseen[1],
        undone=undone,
        routes=dict(zip(NAMES, after.routes.mean(dim=0).tolist(), strict=True)),
        price=parts.price,
        lowest_risk=calibrated.lowest_risk,
        epoch=calibrated.epoch,
    )


def fit(
    start: Parts, questions: Questions, settings: TrainConfig, dense_weight: float, state: Path, progress: Progress
) -> Parts:
    """Take the steps.

    Args:
        start: Where to begin; not changed.
        questions: What to learn from.
        settings: How.
        dense_weight: Share of the cosine in the fused score.
        state: File of the last good state; a run that was stopped goes on from there.
        progress: Told of every step.

    Returns:
        The trained parts.

    Raises:
        TrainingError: The run collapsed; the state file holds the last good state.
    """
    parts, done = start.copied(), 0
    held, run = load_state(state), _run(start, questions, settings)
    if held is not None and held.get("run") == run:
        parts, done = Parts(**held["parts"], price=held["price"]), int(held["step"])
    for tensor in parts.tensors():
        tensor.requires_grad_(True)
    optimizer = torch.optim.Adam(_groups(parts, settings))
    if done and held is not None:
        groups = zip(_groups(parts, settings), held["optimizer"]["param_groups"], strict=True)
        rates = [{**kept, "lr": group["lr"]} for group, kept in groups]  # the rate may have been lowered
        optimizer.load_state_dict({**held["optimizer"], "param_groups": rates})

    def begun(price: float) -> Signs:  # what it began with, a retrieval costing what it does now
        return _signs(objective(replace(start, price=price), questions, settings, dense_weight, start), questions)

    for step in range(done, settings.steps):
        found = objective(parts, questions, settings, dense_weight, start)
        if step % CHECK_EVERY == 0:
            now, began = _signs(found, questions), begun(parts.price)
            check(now, began, step, settings.learning_rate)
            if now.loss <= began.loss + END_LOSS:
                _save(state, parts, {"run": run, "step": step, "optimizer": optimizer.state_dict()})
        optimizer.zero_grad()
        found.loss.backward()  # type: ignore[no-untyped-call]
        _hold(parts, settings, is_late=step >= settings.retriever_start * settings.steps)
        optimizer.step()
        if settings.cost:  # dual ascent: dearer while too much is retrieved
            parts.price = min(max(parts.price + DUAL_RATE * (found.cost.item() - settings.budget), 0.0), 1.0)
        progress(step + 1, settings.steps, "steps")
    found = objective(parts, questions, settings, dense_weight, start)
    check(_signs(found, questions), begun(parts.price), settings.steps, settings.learning_rate, END_LOSS)
    return parts.copied()


def objective(
    parts: Parts, questions: Questions, settings: TrainConfig, dense_weight: float, start: Parts | None
) -> Step:
    """Return the objective and what it is made of.

    Args:
        parts: What is trained.
        questions: What is learned from.
        settings: Which terms there are.
        dense_weight: Share of the cosine in the fused score.
        start: Where the anchors hold; None leaves them out.

    Returns:
        The step.
    """
    costs = torch.tensor([COSTS[route] for route in (*ROUTES, Route.ABSTAIN)])
    slots = losses.slot_probabilities(questions.scores, questions.gaps, questions.facts, parts.calibration)
    ranking = _ranking(parts, questions, dense_weight)
    likelihoods = torch.stack(
        [
            losses.memory_likelihood(slots, questions.is_right),
            losses.mixed_likelihood(SHARPNESS * questions.near, questions.grounds, questions.has_grounds),
            losses.mixed_likelihood(ranking, questions.reads, questions.passages),
            torch.full((len(slots),), float(np.log(ABSTAINING))),
        ],
        dim=1,
    )
    logits = questions.evidence @ parts.gate.T
    chances = torch.cat([torch.sigmoid(logits), torch.full((len(slots), 1), ABSTAINING)], dim=1)
    price = parts.price if settings.cost else 0.0
    routes = losses.route_probabilities(chances, questions.is_open, costs, price, TEMPERATURE)
    likelihood, cost = losses.mixture_loss(routes, likelihoods), losses.expected_cost(routes, costs)
    loss = likelihood + price * cost
    if start is not None and settings.anchor:
        begun = _ranking(start, questions, dense_weight).detach()
        anchors = losses.chance_loss(logits, likelihoods[:, :-1], questions.is_open[:, :-1])
        anchors = anchors + losses.divergence(ranking, begun, questions.passages)
        anchors = anchors + (parts.calibration - start.calibration).pow(2).sum()
        loss = loss + settings.anchor * anchors
    recalls = losses.recall_likelihood(slots, questions.is_right * questions.facts)
    return Step(loss, likelihood, cost, likelihoods, recalls, routes, slots, ranking)


def better(start: Parts, parts: Parts, before: Step, after: Step) -> tuple[Parts, tuple[str, ...]]:
    """Return the trained parts without those that do not help on questions that were held out.

    Args:
        start: Where training began.
        parts: Where it ended.
        before: What the start gives on the questions held out.
        after: What the trained parts give on them.

    Returns:
        The parts, and the names of those that moved and are as they were again: memory's calibration or the query
        adapter goes back where the likelihood of its right output did not rise by more than a standard error. The
        gate is judged when it is calibrated.
    """
    place = ROUTES.index(Route.RETRIEVAL)
    retrieved = (after.likelihoods - before.likelihoods).detach()[:, place]
    kept, undone = parts.copied(), []
    for name, gained, tensors in (
        ("memory", (after.recalls - before.recalls).detach(), ("calibration",)),
        ("retriever", retrieved, ("down", "up")),
    ):
        is_better = float(gained.mean()) > float(gained.std(correction=0)) / len(gained) ** 0.5
        if not is_better and any(not torch.equal(getattr(start, t), getattr(parts, t)) for t in tensors):
            undone.append(name)
            for tensor in tensors:
                setattr(kept, tensor, getattr(start, tensor).detach().clone())
    return kept, tuple(undone)


def starting_parts(width: int, settings: TrainConfig, held: QueryAdapter | None = None) -> Parts:
    """Return the parts trained alone: the default gate, the memory's calibration and the adapter as they are."""
    default, adapter = Gate.default(), held or QueryAdapter.identity(width, settings.rank, settings.seed)
    gate = torch.tensor([default.weights[route] for route in ROUTES], dtype=torch.float32)
    # The offers' scores are calibrated already; in them the gap has been taken off.
    return Parts(gate, torch.tensor([1.0, 0.0, 0.0]), torch.tensor(adapter.down), torch.tensor(adapter.up))


def _ranking(parts: Parts, questions: Questions, dense_weight: float) -> Tensor:
    queries = losses.adapted(questions.queries, parts.down, parts.up)
    return losses.retrieval_logits(queries, questions.vectors, questions.lexical, dense_weight, SHARPNESS)


def _signs(step: Step, questions: Questions) -> Signs:
    ranked = torch.where(questions.passages > 0, step.ranking, torch.full_like(step.ranking, -1e4)).argmax(dim=1)
    first = questions.numbers[torch.arange(len(ranked)), ranked]
    found = questions.passages.any(dim=1).float()
    with torch.no_grad():
        return signs(step.loss, first, found, step.slots, step.routes, NAMES)


def _groups(parts: Parts, settings: TrainConfig) -> list[dict[str, object]]:
    rate = settings.learning_rate
    others: dict[str, object] = {"params": [parts.calibration, parts.down, parts.up], "lr": rate / 10}
    return [{"params": [parts.gate], "lr": rate}, others]


def _hold(parts: Parts, settings: TrainConfig, is_late: bool) -> None:
    """Take the gradient from the parts that are not trained, or not yet."""
    if not settings.gate:
        parts.gate.grad = None
    if not settings.memory:
        parts.calibration.grad = None
    if not (settings.retriever and is_late):
        parts.down.grad = parts.up.grad = None


def _install(kb: KnowledgeBase, parts: Parts, settings: TrainConfig) -> None:
    """Put the parts into use: scores were calibrated already, so what was learned comes on top of that."""
    factor, shift, weight = (float(value) for value in parts.calibration)
    slope, offset, gap = kb.memory.slots.reader.calibration
    calibration = (factor * slope, factor * offset + shift, max(factor * gap + weight, 0.0))
    adapter = QueryAdapter(parts.down.numpy().astype(np.float32), parts.up.numpy().astype(np.float32))
    weights = {route: tuple(float(w) for w in row) for route, row in zip(ROUTES, parts.gate, strict=True)}
    gate = replace(Gate.default(), weights=weights, price=parts.price, is_trained=settings.gate)
    kb.asking.install(gate, adapter if adapter.is_trained else None, calibration)


def _save(path: Path, parts: Parts, reached: dict[str, object]) -> None:
    names = ("gate", "calibration", "down", "up")
    held = dict(zip(names, (tensor.detach().clone() for tensor in parts.tensors()), strict=True))
    save_state(path, {**reached, "price": parts.price, "parts": held})


def _run(start: Parts, questions: Questions, settings: TrainConfig) -> str:
    """Return what a state belongs to: these questions, this start, and these settings but for the learning rate."""
    digest = hashlib.sha256(repr(asdict(replace(settings, learning_rate=0.0))).encode())
    for tensor in (*start.tensors(), *(getattr(questions, field.name) for field in fields(questions))):
        digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()


def _is_held_out(text: str) -> bool:
    """Return whether a question is kept for calibration: three in ten, by its text."""
    return hashlib.sha256(text.encode()).digest()[0] < 77
