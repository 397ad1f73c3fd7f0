"""The command line: arguments → library call → standard output.

Owns flags, exit codes and the progress bar. Holds no logic. Results go to standard output, everything else to standard
error. Heavy modules are imported by the command that needs them, so that `byheart --help` is instant.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from byheart import errors
from byheart.reports import Progress
from byheart.types import Answer, Kind, Passage, Question

if TYPE_CHECKING:
    from byheart.knowledge import KnowledgeBase

EXIT_CODES: dict[type[errors.ByheartError], int] = {
    errors.ByheartError: 1,
    errors.InputError: 2,
    errors.KnowledgeError: 3,
    errors.ReaderError: 4,
    errors.VectorIndexError: 5,
    errors.MissingExtraError: 6,
    errors.EvaluationError: 7,
    errors.KernelError: 9,
}
SOME_REFUSED = 8
NEAREST = 3  # passages shown in place of an answer
DATA_VARIABLE = "BYHEART_DATA"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code.

    Args:
        argv: Arguments without the program's name, those of the process by default.

    Raises:
        SystemExit: Always; the code is 0, or as `EXIT_CODES` says.
    """
    _make_streams_lenient()
    arguments = parser().parse_args(argv)
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


def exit_code(error: errors.ByheartError) -> int:
    """Return the exit code of an error: that of the nearest class in `EXIT_CODES`."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="byheart", description="Answers questions over documents, with citations.")
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    made = _command(commands, "init", _init, "create an empty knowledge base")
    made.add_argument("--set", action="append", default=[], metavar="PART.NAME=VALUE", help="a setting; repeatable")

    add = _command(commands, "add", _add, "add files and folders; again adds only what changed")
    add.add_argument("paths", nargs="+", help="Markdown, text, HTML, PDF, DOCX, JSONL, or folders of such")
    add.add_argument("--prune", action="store_true", help="remove documents whose files are gone from these folders")

    ask = _command(commands, "ask", _ask, "answer a question, with sources")
    ask.add_argument("question", help="the question; - reads one per line from standard input, and prints JSON lines")
    ask.add_argument("--claim", action="store_true", help="the text is a claim: answer SUPPORTS or REFUTES")
    ask.add_argument(
        "--reader", choices=("compact", "causal-lm", "openai"), help="another reader than the configured one"
    )

    search = _command(commands, "search", _search, "list the best passages")
    search.add_argument("question", help="what to look for")
    search.add_argument("-k", type=int, default=5, help="passages (default 5)")

    remove = _command(commands, "remove", _remove, "remove documents, and all that came from them")
    remove.add_argument("names", nargs="+", help="pages, files or folders, as they were added")

    _command(commands, "status", _status, "show sizes and versions")
    _command(commands, "documents", _documents, "list the documents")

    config = _command(commands, "config", _config, "show the settings, or change one")
    config.add_argument("setting", nargs="?", metavar="PART.NAME=VALUE", help="such as reader.passages=3")

    tune = _command(commands, "tune", _tune, "fit the fusion weight on questions whose passage is known")
    tune.add_argument("--questions", type=Path, required=True, help="JSONL of {question, passage id}")

    snapshot = _command(commands, "snapshot", _snapshot, "copy the current epoch to a new folder")
    snapshot.add_argument("target", type=Path, help="folder to create")
    restore = _command(commands, "restore", _restore, "take over a snapshot's content")
    restore.add_argument("source", type=Path, help="folder that snapshot wrote")

    _add_research_commands(commands)
    return top


def _add_research_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    evaluate = commands.add_parser("evaluate", help="run an evaluation suite; resumable")
    evaluate.set_defaults(run=_evaluate)
    evaluate.add_argument("suite", choices=("nq", "fever", "support"), help="what to measure")
    evaluate.add_argument(
        "--kb", type=Path, help="knowledge base of the suite's corpus, built if missing (default: work folder)"
    )
    evaluate.add_argument("--results", type=Path, default=Path("benchmarks/results"), help="folder of the result files")
    evaluate.add_argument("--limit", type=int, help="questions at most, for a quick look")
    evaluate.add_argument("--seed", type=int, default=7, help="seed of the bootstrap (default 7)")
    _add_data(evaluate)

    train = commands.add_parser("train", help="train a part on the public data sets; resumable")
    train.set_defaults(run=_train)
    train.add_argument("part", choices=("reader",), help="what to train")
    train.add_argument("--work", type=Path, default=Path("work/reader"), help="folder for vectors, state and log")
    train.add_argument("--out", type=Path, help="weight file to write (default: the one in the package)")
    train.add_argument("--epochs", type=int, default=3, help="passes over the data (default 3)")
    train.add_argument(
        "--precision", choices=("bf16", "fp32"), default="bf16", help="of the forward pass (default bf16)"
    )
    _add_data(train)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int | None],
    text: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("kb", type=Path, help="folder of the knowledge base")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)
    return command


def _add_data(command: argparse.ArgumentParser) -> None:
    given = os.environ.get(DATA_VARIABLE)
    command.add_argument(
        "--data",
        type=Path,
        default=given,
        required=given is None,
        help=f"folder of the data sets (default ${DATA_VARIABLE})",
    )


def _open(arguments: argparse.Namespace) -> KnowledgeBase:
    from byheart.knowledge import KnowledgeBase

    return KnowledgeBase(arguments.kb)


def _init(arguments: argparse.Namespace) -> None:
    from byheart.config import Config
    from byheart.knowledge import init

    config = Config()
    for text in arguments.set:
        config = config.replace(*_setting(text))
    with init(arguments.kb, config) as kb:
        _say(arguments, kb.status(), f"created {arguments.kb}; next: byheart add {arguments.kb} DOCUMENTS")


def _add(arguments: argparse.Namespace) -> int:
    from byheart import show

    with _open(arguments) as kb, _Bar() as bar:
        report = kb.add(*arguments.paths, prune=arguments.prune, progress=bar)
    _say(arguments, report, show.added(report))
    return SOME_REFUSED if report.refused else 0


def _ask(arguments: argparse.Namespace) -> None:
    from byheart import show

    with _open(arguments) as kb:
        if arguments.reader:
            kb.config = kb.config.replace("reader.name", arguments.reader)
        if arguments.question == "-":
            kind = Kind.CLAIM if arguments.claim else Kind.QUESTION
            for number, line in enumerate(sys.stdin or (), start=1):
                if line.strip():
                    print(_json(_asked(kb, line, kind, number)), flush=True)
            return
        answer = kb.ask(arguments.question, claim=arguments.claim)
        nearest = _nearest(kb, answer) if answer.text is None else []
    _say(arguments, answer, show.answer(answer, nearest))


def _asked(kb: KnowledgeBase, line: str, kind: Kind, number: int) -> Answer:
    """Answer one line of many; an error says which line it was, for those before it are answered."""
    try:
        return kb.ask_many([Question.parse(line, kind)])[0]
    except errors.InputError as error:
        raise type(error)(f"line {number}: {error}") from error


def _nearest(kb: KnowledgeBase, answer: Answer) -> list[Passage]:
    try:
        return kb.passages([hit.passage_id for hit in answer.hits[:NEAREST]])
    except errors.PassageError:  # another process has removed one since
        return []


def _search(arguments: argparse.Namespace) -> None:
    from byheart import show

    with _open(arguments) as kb:
        found = kb.search(arguments.question, arguments.k)
    _say(arguments, found, show.hits(found))


def _remove(arguments: argparse.Namespace) -> int:
    from byheart import show

    with _open(arguments) as kb:
        report = kb.remove(*arguments.names)
    _say(arguments, report, show.removed(report))
    return EXIT_CODES[errors.InputError] if report.missing else 0


def _status(arguments: argparse.Namespace) -> None:
    from byheart import show

    with _open(arguments) as kb:
        found = kb.status()
    _say(arguments, found, show.status(found))


def _documents(arguments: argparse.Namespace) -> None:
    from byheart import show

    with _open(arguments) as kb:
        rows = kb.documents()
    lines = (show.line(f"{n:>6}  {page}  {title}") for page, title, n in rows)
    _say(arguments, rows, "\n".join(lines) or "no documents")


def _config(arguments: argparse.Namespace) -> None:
    from byheart import config

    with _open(arguments) as kb:
        held = kb.configure(*_setting(arguments.setting)) if arguments.setting else kb.config
    _say(arguments, held, config.dumps(held))


def _tune(arguments: argparse.Namespace) -> None:
    from byheart.corpus.questions import read_gold_questions

    with _open(arguments) as kb:
        fitted = kb.tune(*read_gold_questions(arguments.questions))
    text = f"cosine weighs {fitted.dense_weight:.2f}: recall@1 {fitted.recall_at_1:.3f}, @5 {fitted.recall_at_5:.3f}"
    _say(arguments, fitted, f"{text} on {fitted.n} questions")


def _snapshot(arguments: argparse.Namespace) -> None:
    with _open(arguments) as kb:
        folder = kb.snapshot(arguments.target)
        _say(arguments, {"folder": str(folder), "epoch": kb.epoch}, f"epoch {kb.epoch} copied to {folder}")


def _restore(arguments: argparse.Namespace) -> None:
    with _open(arguments) as kb:
        epoch = kb.restore(arguments.source)
    _say(arguments, {"epoch": epoch}, f"restored {arguments.source} as epoch {epoch}")


def _evaluate(arguments: argparse.Namespace) -> None:
    from byheart.evaluate import suites

    with _Bar() as bar:
        rows = suites.run(
            arguments.suite, arguments.data, arguments.kb, arguments.results, bar, arguments.limit, arguments.seed
        )
    print(suites.table(rows))


def _train(arguments: argparse.Namespace) -> None:
    from byheart.reader.compact import shipped_weights
    from byheart.train.reader import ReaderTraining, train_reader

    training = ReaderTraining(epochs=arguments.epochs, precision=arguments.precision)
    with _Bar() as bar:
        print(train_reader(arguments.data, arguments.work, arguments.out or shipped_weights(), training, bar))


def _say(arguments: argparse.Namespace, value: object, text: str) -> None:
    print(_json(value) if arguments.json else text)


def _json(value: object) -> str:
    """Return JSON that standard output can hold as it is: an escape for what its encoding lacks is no JSON."""
    from byheart import show

    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return show.as_json(value, is_ascii=not encoding.lower().startswith("utf"))


def _make_streams_lenient() -> None:
    """Have no character fail: what cannot be written becomes an escape, what cannot be read a refused question."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdin else "backslashreplace")


def _setting(text: str) -> tuple[str, object]:
    """Return name and value of `PART.NAME=VALUE`; what is no number and no boolean is text."""
    import tomllib

    key, equals, value = text.partition("=")
    if not equals:
        raise errors.ConfigError(f"a setting is written PART.NAME=VALUE, got {text!r}")
    try:
        read = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key.strip(), value
    return key.strip(), read["value"] if len(read) == 1 else value


def _version() -> str:
    from importlib.metadata import version

    return version("byheart")


class _Bar:
    """A progress bar on standard error, drawn only on a terminal."""

    def __enter__(self) -> Progress:
        from tqdm import tqdm

        self._bar = tqdm(disable=None, leave=False, file=sys.stderr)
        return self._show

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def _show(self, done: int, total: int, what: str) -> None:
        self._bar.set_description_str(what, refresh=False)
        self._bar.total, self._bar.n = total, done
        self._bar.refresh()
