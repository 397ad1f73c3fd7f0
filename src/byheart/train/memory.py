"""Adapting the memory to one knowledge base: its own facts as pairs, a few steps, a check, all slots anew.

Owns the order and the check: an adapted kernel that does not judge held-out pairs better than the one before is thrown
away. Can be stopped and started again. Half of the pairs are leave-one-out: a question beside its nearest neighbours.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from byheart.config import EncoderConfig
from byheart.corpus.near_questions import NearQuestions, read_near_questions
from byheart.errors import FactError
from byheart.interfaces import Floats
from byheart.knowledge import KnowledgeBase
from byheart.memory.kernel import Kernel, load_kernel, save_kernel
from byheart.memory.reader import BASE
from byheart.reports import LearnReport, Progress, no_progress
from byheart.store.settings import WEIGHTS_FOLDER
from byheart.text.encoder import SentenceEncoder
from byheart.text.models import model_folder
from byheart.train.checkpoint import load_state, only_one, save_state
from byheart.train.kernel import Batch, KernelTraining, judged, lay_out, new_optimizer, set_rate, train_step
from byheart.train.memory_pairs import Pair
from byheart.train.rewording import clumsy, swapped
from byheart.types import Fact, FactState

NEIGHBOURS = 3
LEAST_FACTS = 20
TOKENS = 1600  # padded tokens in one batch
STATE = "memory-training.pt"


@dataclass(frozen=True, slots=True)
class MemoryTraining:
    """Settings of one adaptation.

    Attributes:
        steps: Batches; 0 writes the slots anew and trains nothing.
        learning_rate: Peak rate: a third of the kernel's own, for it is not to unlearn what it knows.
        seed: Of everything random.
        checkpoint_steps: Steps between two saved states.
    """

    steps: int = 200
    learning_rate: float = 3e-5
    seed: int = 7
    checkpoint_steps: int = 50


@dataclass(frozen=True, slots=True)
class Adapted:
    """What adapting gave.

    Attributes:
        loss_before: Nats per held-out pair, before.
        loss_after: After.
        is_kept: Whether the adapted kernel is used from now on.
        report: What memory holds now; None where nothing was written anew.
    """

    loss_before: float
    loss_after: float
    is_kept: bool
    report: LearnReport | None


def train_memory(
    folder: Path, pairs: Path | None, settings: MemoryTraining, progress: Progress = no_progress
) -> Adapted:
    """Adapt the memory of a knowledge base to its facts, if that judges held-out pairs better.

    Args:
        folder: The knowledge base.
        pairs: JSONL of `{question, same, different}`, None for the facts alone.
        settings: How to train.
        progress: Told of every step.

    Returns:
        Losses before and after, and whether the new kernel was kept.

    Raises:
        FactError: There are too few facts, or their texts are not kept.
        TrainingError: Another process is training it.
    """
    with KnowledgeBase(folder) as kb, only_one(folder):
        if settings.steps == 0:
            return Adapted(0.0, 0.0, False, kb.memory.rewrite(kb.memory.own_weights(), progress))
        facts = [f for f in kb.facts() if f.state is FactState.MEMORISED and f.answer is not None and f.questions]
        written = () if pairs is None else tuple(read_near_questions(pairs))
        if len(facts) < LEAST_FACTS:
            raise FactError(f"adapting needs {LEAST_FACTS} facts with texts, {folder} has {len(facts)}; learn more")
        encoder = SentenceEncoder(EncoderConfig(device=kb.config.encoder.device))  # the kernel's own
        found = fact_pairs(facts, written, encoder.encode_queries, settings.seed)
        trained, held_out = split(found)
        in_use = kb.memory.slots.reader.weights
        kernel, notes, extra = load_kernel(in_use, model_folder(BASE))
        before = mean_loss(kernel, encoder, held_out)
        _adapt(kernel, lambda seed: lay_out(trained, encoder, TOKENS, seed), settings, folder / STATE, progress)
        saved = _saved(kernel, notes, extra, folder)
        after = mean_loss(load_kernel(saved, model_folder(BASE))[0], encoder, held_out)  # as it is used: in 8 bits
        is_kept = after < before
        report = kb.memory.rewrite(saved, progress) if is_kept else None
        if not is_kept and saved != in_use:  # named by its hash: what has not changed is the file in use
            saved.unlink()
        (folder / STATE).unlink(missing_ok=True)
    return Adapted(before, after, is_kept, report)


def fact_pairs(
    facts: Sequence[Fact], written: Sequence[NearQuestions], embed: Callable[[Sequence[str]], Floats], seed: int
) -> list[Pair]:
    """Return pairs of a knowledge base's own facts.

    Args:
        facts: Memorised facts.
        written: Ways to ask, and near misses, as the user gives them.
        embed: Vectors of texts. Shape `batch width`.
        seed: Of the choices.

    Returns:
        Right pairs: paraphrases and clumsy wordings. Wrong ones: nearest neighbours with another answer, swapped words.
    """
    rng = random.Random(seed)
    first = [fact.questions[0] for fact in facts]
    vectors = embed(first)
    found: list[Pair] = []
    for i, fact in enumerate(facts):
        answer = str(fact.answer)
        others = fact.questions[1:]
        found += [Pair(other, fact.questions[0], answer, True, fact.id) for other in others]
        found += [Pair(fact.questions[0], other, answer, True, fact.id) for other in others]
        found.append(Pair(clumsy(rng.choice(fact.questions), rng), fact.questions[0], answer, True, fact.id))
        cosines = vectors @ vectors[i]
        near = [j for j in np.argsort(-cosines)[1 : 1 + NEIGHBOURS] if facts[j].answer != fact.answer]
        found += [Pair(rng.choice(fact.questions), first[j], str(facts[j].answer), False, fact.id) for j in near]
        changed = swapped(fact.questions[0], (), rng)
        if changed is not None:
            found.append(Pair(changed, fact.questions[0], answer, False, fact.id))
    for given in written:
        found += [Pair(text, given.question, "", True, given.question) for text in given.same]
        found += [Pair(text, given.question, "", False, given.question) for text in given.different]
    return found


def split(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Return pairs to train on, and the pairs of one fact in five to check on: those whose ids hash lowest."""
    sources = sorted({pair.source for pair in pairs}, key=lambda source: hashlib.sha256(source.encode()).digest())
    held_out = set(sources[: max(1, len(sources) // 5)])
    return [p for p in pairs if p.source not in held_out], [p for p in pairs if p.source in held_out]


def mean_loss(kernel: Kernel, encoder: SentenceEncoder, pairs: Sequence[Pair]) -> float:
    """Return the mean negative log-likelihood of pairs, in nats."""
    odds, labels = judged(kernel, encoder, pairs)
    return float(nn.functional.binary_cross_entropy_with_logits(odds, labels))


def _adapt(
    kernel: Kernel, lay: Callable[[int], list[Batch]], settings: MemoryTraining, state: Path, progress: Progress
) -> None:
    """Train a kernel on what `lay` gives for a seed, from the state file on where there is one."""
    training = KernelTraining(learning_rate=settings.learning_rate, seed=settings.seed)
    optimizer = new_optimizer(kernel, training)
    done = _resume(state, settings, kernel, optimizer)
    batches: list[Batch] = []
    while len(batches) < settings.steps:
        batches += lay(settings.seed + len(batches))
    kernel.train()
    for step in range(done, settings.steps):
        torch.manual_seed(settings.seed + step)
        set_rate(optimizer, training, step / settings.steps)
        train_step(kernel, optimizer, batches[step], training)
        if (step + 1) % settings.checkpoint_steps == 0:
            held = {"step": step + 1, "settings": asdict(settings), "kernel": kernel.state_dict()}
            save_state(state, held | {"optimizer": optimizer.state_dict()})
        progress(step + 1, settings.steps, "steps")


def _resume(path: Path, settings: MemoryTraining, kernel: Kernel, optimizer: torch.optim.Optimizer) -> int:
    state = load_state(path)
    if state is None or state["settings"] != asdict(settings):
        return 0
    kernel.load_state_dict(state["kernel"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _saved(kernel: Kernel, notes: dict[str, object], extra: dict[str, torch.Tensor], folder: Path) -> Path:
    """Write a kernel below the knowledge base, named by its hash, and return the file."""
    target = folder / WEIGHTS_FOLDER
    target.mkdir(exist_ok=True)
    draft = target / "kernel.draft"
    kept = {name: value for name, value in notes.items() if name not in {"format", "shape"}}
    save_kernel(draft, kernel, Kernel(model_folder(BASE), kernel.shape), kept, extra)
    named = target / f"kernel-{hashlib.sha256(draft.read_bytes()).hexdigest()[:16]}.safetensors"
    draft.replace(named)
    return named
