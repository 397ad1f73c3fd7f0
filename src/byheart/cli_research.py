"""Commands for researchers: measuring, and training what the package ships.

Owns their arguments and what they print. Holds no logic.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from byheart.terminal import Bar, open_base

DATA_VARIABLE = "BYHEART_DATA"
JOINT = "joint"
PARTS = ("reader", "claims", "kernel", "answers", "memory", JOINT)
SUITES = (
    "nq",
    "fever",
    "support",
    "near_miss",
    "capacity",
    "write_rate",
    "fever_memory",
    "fever_incomplete",
    "traffic",
    "traffic_noisy",
    "frequency",
)  # as in evaluate.suites


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands.

    Args:
        commands: Where they are added.
    """
    evaluate = commands.add_parser("evaluate", help="run an evaluation suite; resumable")
    evaluate.set_defaults(run=_evaluate)
    evaluate.add_argument("suite", choices=SUITES, help="what to measure")
    evaluate.add_argument(
        "--kb", type=Path, help="knowledge base of the suite's corpus, built if missing (default: work folder)"
    )
    evaluate.add_argument("--results", type=Path, default=Path("benchmarks/results"), help="folder of the result files")
    evaluate.add_argument("--limit", type=int, help="questions at most, for a quick look")
    evaluate.add_argument("--seed", type=int, default=7, help="seed of the bootstrap (default 7)")
    _add_data(evaluate)

    train = commands.add_parser(
        "train", help="train KB: memory, retriever and gate of one knowledge base; or a shipped part; resumable"
    )
    parts = train.add_subparsers(title="parts", metavar="PART", required=True)
    shipped = (
        ("reader", "the shipped reader, and its network for claims", _train_reader, 3),
        ("claims", "the shipped reader's network for claims alone", _train_claims, 3),
        ("kernel", "the shipped memory's network", _train_kernel, 3),
        ("answers", "the shipped memory's speller of answers", _train_answers, None),
    )
    for name, what, run, epochs in shipped:
        part = parts.add_parser(name, help=f"train {what}, on the public data sets")
        part.set_defaults(run=run)
        part.add_argument("--work", type=Path, default=Path("work") / name, help="folder for vectors, state and log")
        part.add_argument("--out", type=Path, help="weight file to write (default: the one in the package)")
        if epochs is not None:
            part.add_argument("--epochs", type=int, default=epochs, help=f"passes over the data (default {epochs})")
            part.add_argument(
                "--precision", choices=("bf16", "fp32"), default="bf16", help="of the forward pass (default bf16)"
            )
        _add_data(part)
    joint = parts.add_parser(JOINT, help="train memory, retriever and gate of one knowledge base (`train KB` is short)")
    joint.set_defaults(run=_train_joint)
    joint.add_argument("kb", type=Path, help="folder of the knowledge base")
    joint.add_argument("--questions", type=Path, required=True, help="JSONL of {question, answers, kind?}")
    memory = parts.add_parser("memory", help="adapt the memory to one knowledge base and write its slots anew")
    memory.set_defaults(run=_train_memory)
    memory.add_argument("kb", type=Path, help="folder of the knowledge base")
    memory.add_argument("--pairs", type=Path, help="JSONL of {question, same, different}")
    memory.add_argument("--steps", type=int, default=200, help="steps (default 200); 0 only writes the slots anew")


def spelled_out(argv: Sequence[str]) -> list[str]:
    """Return arguments in which `train KB …` says what is trained: everything, jointly."""
    given = list(argv)
    if len(given) > 1 and given[0] == "train" and given[1] not in PARTS and not given[1].startswith("-"):
        given.insert(1, JOINT)
    return given


def _add_data(command: argparse.ArgumentParser) -> None:
    given = os.environ.get(DATA_VARIABLE)
    command.add_argument(
        "--data",
        type=Path,
        default=given,
        required=given is None,
        help=f"folder of the data sets (default ${DATA_VARIABLE})",
    )


def _evaluate(arguments: argparse.Namespace) -> None:
    from byheart.evaluate import suites
    from byheart.train.joint import train_joint

    with Bar() as bar:
        rows = suites.run(
            arguments.suite, arguments.data, arguments.kb, arguments.results, bar, arguments.limit, arguments.seed,
            train_joint,
        )  # fmt: skip
    print(suites.table(rows))


def _train_reader(arguments: argparse.Namespace) -> None:
    from byheart.reader.compact import shipped_weights
    from byheart.train.claims import ClaimTraining, train_claims
    from byheart.train.reader import ReaderTraining, train_reader

    training = ReaderTraining(epochs=arguments.epochs, precision=arguments.precision)
    weights = arguments.out or shipped_weights()
    with Bar() as bar:
        train_reader(arguments.data, arguments.work, weights, training, bar)
        claims = ClaimTraining(precision=arguments.precision)
        print(train_claims(arguments.data, arguments.work / "claims", weights, claims, bar))


def _train_claims(arguments: argparse.Namespace) -> None:
    from byheart.reader.compact import shipped_weights
    from byheart.train.claims import ClaimTraining, train_claims

    training = ClaimTraining(epochs=arguments.epochs, precision=arguments.precision)
    with Bar() as bar:
        print(train_claims(arguments.data, arguments.work, arguments.out or shipped_weights(), training, bar))


def _train_kernel(arguments: argparse.Namespace) -> None:
    from byheart.memory.reader import shipped_kernel
    from byheart.train.kernel import KernelTraining, train_kernel

    training = KernelTraining(epochs=arguments.epochs, precision=arguments.precision)
    with Bar() as bar:
        print(train_kernel(arguments.data, arguments.work, arguments.out or shipped_kernel(), training, bar))


def _train_answers(arguments: argparse.Namespace) -> None:
    from byheart.memory.answers import shipped_answers
    from byheart.train.answers import AnswerTraining, train_answers

    with Bar() as bar:
        print(train_answers(arguments.data, arguments.work, arguments.out or shipped_answers(), AnswerTraining(), bar))


def _train_joint(arguments: argparse.Namespace) -> None:
    from byheart import show_memory
    from byheart.corpus.questions import read_answered_questions
    from byheart.train.joint import train_joint

    with open_base(arguments) as kb, Bar() as bar:
        print(show_memory.trained(train_joint(kb, *read_answered_questions(arguments.questions), bar)))


def _train_memory(arguments: argparse.Namespace) -> None:
    from byheart import show_memory
    from byheart.train.memory import MemoryTraining, train_memory

    with Bar() as bar:
        found = train_memory(arguments.kb, arguments.pairs, MemoryTraining(steps=arguments.steps), bar)
    if arguments.steps:
        verdict = "better, kept" if found.is_kept else "no better, thrown away: the memory is as it was"
        print(f"loss on held-out pairs {found.loss_before:.4f} before, {found.loss_after:.4f} after: {verdict}")
    if found.report is not None:
        print(show_memory.learned(found.report))
