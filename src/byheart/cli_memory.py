"""Commands on facts: learn them, recall them, list them, forget them.

Owns their arguments. Holds no logic.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from byheart.terminal import SOME_REFUSED, Bar, add_command, each_line, open_base, say


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands.

    Args:
        commands: Where they are added.
    """
    learn = add_command(commands, "learn", _learn, "learn facts by heart; again changes nothing")
    learn.add_argument(
        "facts",
        type=Path,
        help="JSONL or CSV of question, answer, paraphrases?, source?, evidence?, id?, kind? (question or claim)",
    )

    recall = add_command(commands, "recall", _recall, "what memory alone says, with probabilities")
    recall.add_argument("question", help="the question; - reads one per line from standard input, prints JSON")
    recall.add_argument("--claim", action="store_true", help="the text is a claim")

    facts = add_command(commands, "facts", _facts, "list facts: text, source, version, uses")
    facts.add_argument("--search", default="", metavar="WORDS", help="only facts that hold these words")
    facts.add_argument("--limit", type=int, help="facts at most")

    forget = add_command(commands, "forget", _forget, "remove facts; what they held leaves the file")
    forget.add_argument("ids", nargs="+", metavar="ID", help="ids, as `byheart facts` lists them")

    calibrate = add_command(commands, "calibrate", _calibrate, "fit the gate to held-out questions")
    calibrate.add_argument("--questions", type=Path, required=True, help="JSONL of {question, answers, kind?}")

    add_command(commands, "capacity", _capacity, "how full memory is, and its recall now and at ten times the facts")


def _learn(arguments: argparse.Namespace) -> int:
    from byheart import show_memory

    with open_base(arguments) as kb, Bar() as bar:
        report = kb.learn(arguments.facts, bar)
    say(arguments, report, show_memory.learned(report))
    return SOME_REFUSED if report.refused or report.conflicts else 0


def _recall(arguments: argparse.Namespace) -> int:
    from byheart import show_memory

    with open_base(arguments) as kb:
        if arguments.question == "-":
            return each_line(sys.stdin or (), lambda line: kb.recall(line, claim=arguments.claim))
        found = kb.recall(arguments.question, claim=arguments.claim)
        threshold, is_empty = kb.config.memory.threshold, not kb.facts(limit=1)
    say(arguments, found, show_memory.recalled(found, threshold, is_empty))
    return 0


def _facts(arguments: argparse.Namespace) -> None:
    from byheart import show_memory

    with open_base(arguments) as kb:
        found = kb.facts(arguments.search, arguments.limit)
    say(arguments, found, show_memory.facts(found))


def _forget(arguments: argparse.Namespace) -> None:
    from byheart import show_memory

    with open_base(arguments) as kb:
        n = kb.forget(*arguments.ids)
        epoch, is_clean = kb.epoch, kb.memory.is_clean()
    told = {"forgotten": n, "epoch": epoch, "is_clean": is_clean}
    say(arguments, told, show_memory.forgotten(n, epoch, is_clean))


def _calibrate(arguments: argparse.Namespace) -> None:
    from byheart import show_memory
    from byheart.corpus.questions import read_answered_questions

    with open_base(arguments) as kb, Bar() as bar:
        report = kb.calibrate(*read_answered_questions(arguments.questions), bar)
    say(arguments, report, show_memory.calibrated(report))


def _capacity(arguments: argparse.Namespace) -> None:
    from byheart import show_memory

    with open_base(arguments) as kb:
        found = kb.capacity()
    say(arguments, found, show_memory.capacity(found))
