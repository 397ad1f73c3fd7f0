"""The command line: arguments → library call → standard output.

Owns flags and exit codes. Holds no logic. Results go to standard output, everything else to standard
error. Heavy modules are imported by the command that needs them, so that `byheart --help` is instant.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from byheart import cli_memory, cli_report, cli_research, errors
from byheart.terminal import (
    EXIT_CODES,
    SOME_REFUSED,
    Bar,
    add_command,
    each_line,
    exit_code,
    make_streams_lenient,
    open_base,
    read_setting,
    say,
)
from byheart.types import Answer, Kind, Passage, Question

if TYPE_CHECKING:
    from byheart.knowledge import KnowledgeBase

NEAREST = 3  # passages shown in place of an answer


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code.

    Args:
        argv: Arguments without the program's name, those of the process by default.

    Raises:
        SystemExit: Always; the code is 0, or as `EXIT_CODES` says.
    """
    make_streams_lenient()
    arguments = parser().parse_args(cli_research.spelled_out(sys.argv[1:] if argv is None else argv))
    try:
        code = arguments.run(arguments)
        print(end="", flush=True)  # a closed pipe is noticed here, not at the interpreter's end
    except errors.ByheartError as error:
        from byheart import show

        print(f"byheart: {show.line(str(error))}", file=sys.stderr)
        raise SystemExit(exit_code(error)) from None
    except KeyboardInterrupt:
        print("byheart: stopped; what was committed stays", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        print(f"byheart: {what}; free space or rights, or pass another path, then run it again", file=sys.stderr)
        raise SystemExit(EXIT_CODES[errors.ByheartError]) from None
    raise SystemExit(code or 0)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="byheart", description="Answers questions over documents, with citations.")
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    made = add_command(commands, "init", _init, "create an empty knowledge base")
    made.add_argument("--set", action="append", default=[], metavar="PART.NAME=VALUE", help="a setting; repeatable")

    add = add_command(commands, "add", _add, "add files and folders; again adds only what changed")
    add.add_argument("paths", nargs="+", help="Markdown, text, HTML, PDF, DOCX, JSONL, or folders of such")
    add.add_argument("--prune", action="store_true", help="remove documents whose files are gone from these folders")

    ask = add_command(commands, "ask", _ask, "answer a question, with sources")
    ask.add_argument("question", help="the question; - reads one per line from standard input, and prints JSON lines")
    ask.add_argument("--claim", action="store_true", help="the text is a claim: answer SUPPORTS or REFUTES")
    ask.add_argument(
        "--reader", choices=("compact", "causal-lm", "openai"), help="another reader than the configured one"
    )

    ask.add_argument("--risk", type=float, help="largest share of memory's answers that may be wrong, such as 0.01")
    ask.add_argument("--budget", type=float, help="retrievals per question at most, on average, such as 0.6")
    ask.add_argument(
        "--route",
        choices=("memory", "retrieval", "both"),
        help="one way for every question; both reads the passages of recalled facts, without a search",
    )

    search = add_command(commands, "search", _search, "list the best passages")
    search.add_argument("question", help="what to look for")
    search.add_argument("-k", type=int, default=5, help="passages (default 5)")

    remove = add_command(commands, "remove", _remove, "remove documents, and all that came from them")
    remove.add_argument("names", nargs="+", help="pages, files or folders, as they were added")

    add_command(commands, "status", _status, "show sizes and versions")
    add_command(commands, "documents", _documents, "list the documents")

    config = add_command(commands, "config", _config, "show the settings, or change one")
    config.add_argument("setting", nargs="?", metavar="PART.NAME=VALUE", help="such as reader.passages=3")

    tune = add_command(commands, "tune", _tune, "fit the fusion weight on questions whose passage is known")
    tune.add_argument("--questions", type=Path, required=True, help="JSONL of {question, passage id}")

    snapshot = add_command(commands, "snapshot", _snapshot, "copy the current epoch to a new folder")
    snapshot.add_argument("target", type=Path, help="folder to create")
    restore = add_command(commands, "restore", _restore, "take over a snapshot's content")
    restore.add_argument("source", type=Path, help="folder that snapshot wrote")

    cli_memory.add_commands(commands)
    cli_research.add_commands(commands)
    cli_report.add_commands(commands)
    return top


def _init(arguments: argparse.Namespace) -> None:
    from byheart.config import Config
    from byheart.folder import init

    config = Config()
    for text in arguments.set:
        config = config.replace(*read_setting(text))
    with init(arguments.kb, config) as kb:
        say(arguments, kb.status(), f"created {arguments.kb}; next: byheart add {arguments.kb} DOCUMENTS")


def _add(arguments: argparse.Namespace) -> int:
    from byheart import show

    with open_base(arguments) as kb, Bar() as bar:
        report = kb.add(*arguments.paths, prune=arguments.prune, progress=bar)
    say(arguments, report, show.added(report))
    return SOME_REFUSED if report.refused else 0


def _ask(arguments: argparse.Namespace) -> int:
    from byheart import show

    with open_base(arguments) as kb:
        if arguments.reader:
            kb.config = kb.config.replace("reader.name", arguments.reader)
        if arguments.question == "-":
            return each_line(sys.stdin or (), lambda text: _answered(kb, text, arguments))
        answer = _answered(kb, arguments.question, arguments)
        nearest = _nearest(kb, answer) if answer.text is None else []
    say(arguments, answer, show.answer(answer, nearest))
    return 0


def _answered(kb: KnowledgeBase, text: str, arguments: argparse.Namespace) -> Answer:
    from byheart.decisions import Route, Wishes

    question = Question.parse(text, Kind.CLAIM if arguments.claim else Kind.QUESTION)
    wishes = Wishes(arguments.risk, budget=arguments.budget)
    return kb.ask_many([question], wishes=wishes, route=Route(arguments.route) if arguments.route else None)[0]


def _nearest(kb: KnowledgeBase, answer: Answer) -> list[Passage]:
    try:
        return kb.passages([hit.passage_id for hit in answer.hits[:NEAREST]])
    except errors.PassageError:  # another process has removed one since
        return []


def _search(arguments: argparse.Namespace) -> None:
    from byheart import show

    with open_base(arguments) as kb:
        found = kb.search(arguments.question, arguments.k)
    say(arguments, found, show.hits(found))


def _remove(arguments: argparse.Namespace) -> int:
    from byheart import show

    with open_base(arguments) as kb:
        report = kb.remove(*arguments.names)
    say(arguments, report, show.removed(report))
    return EXIT_CODES[errors.InputError] if report.missing else 0


def _status(arguments: argparse.Namespace) -> None:
    from byheart import show

    with open_base(arguments) as kb:
        found = kb.status()
    say(arguments, found, show.status(found))


def _documents(arguments: argparse.Namespace) -> None:
    from byheart import show

    with open_base(arguments) as kb:
        rows = kb.documents()
    lines = (show.line(f"{n:>6}  {page}  {title}") for page, title, n in rows)
    say(arguments, rows, "\n".join(lines) or "no documents")


def _config(arguments: argparse.Namespace) -> None:
    from byheart import config

    with open_base(arguments) as kb:
        held = kb.configure(*read_setting(arguments.setting)) if arguments.setting else kb.config
    say(arguments, held, config.dumps(held))


def _tune(arguments: argparse.Namespace) -> None:
    from byheart.corpus.questions import read_gold_questions

    with open_base(arguments) as kb:
        fitted = kb.tune(*read_gold_questions(arguments.questions))
    text = f"cosine weighs {fitted.dense_weight:.2f}: recall@1 {fitted.recall_at_1:.3f}, @5 {fitted.recall_at_5:.3f}"
    say(arguments, fitted, f"{text} on {fitted.n} questions")


def _snapshot(arguments: argparse.Namespace) -> None:
    with open_base(arguments) as kb:
        folder = kb.snapshot(arguments.target)
        say(arguments, {"folder": str(folder), "epoch": kb.epoch}, f"epoch {kb.epoch} copied to {folder}")


def _restore(arguments: argparse.Namespace) -> None:
    with open_base(arguments) as kb:
        epoch = kb.restore(arguments.source)
    say(arguments, {"epoch": epoch}, f"restored {arguments.source} as epoch {epoch}")


def _version() -> str:
    from importlib.metadata import version

    return version("byheart")
