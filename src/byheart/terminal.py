"""The terminal: what commands have in common.

Owns standard streams, the progress bar, how a value is printed, and the arguments that every command takes.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from byheart import errors
from byheart.reports import Progress

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
    errors.TrainingError: 10,
}
SOME_REFUSED = 8


def exit_code(error: errors.ByheartError) -> int:
    """Return the exit code of an error: that of the nearest class in `EXIT_CODES`."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


def each_line(lines: Iterable[str], answered: Callable[[str], object]) -> int:
    """Print one JSON line per line of input; one that cannot be read is named, and those after it are answered.

    Args:
        lines: Questions; blank lines are passed over.
        answered: Answers one.

    Returns:
        The exit code of the last error, 0 where there was none.
    """
    from byheart import show

    code = 0
    for number, text in enumerate(lines, start=1):
        try:
            if text.strip():
                print(to_json(answered(text)), flush=True)
        except errors.InputError as error:
            print(f"byheart: line {number}: {show.line(str(error))}", file=sys.stderr)
            code = exit_code(error)
    return code


def say(arguments: argparse.Namespace, value: object, text: str) -> None:
    """Print a value as JSON where that was asked for, else its text."""
    print(to_json(value) if arguments.json else text)


def to_json(value: object) -> str:
    """Return JSON that standard output can hold as it is: an escape for what its encoding lacks is no JSON."""
    from byheart import show

    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return show.as_json(value, is_ascii=not encoding.lower().startswith("utf"))


def make_streams_lenient() -> None:
    """Have no character fail: what cannot be written becomes an escape, what cannot be read a refused question."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdin else "backslashreplace")


def read_setting(text: str) -> tuple[str, object]:
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


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int | None],
    text: str,
) -> argparse.ArgumentParser:
    """Return the parser of a new command on a knowledge base.

    Args:
        commands: Where the command is added.
        name: What is typed.
        run: What it does; it returns an exit code, None for 0.
        text: What it is for.

    Returns:
        The parser, for further arguments.
    """
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("kb", type=Path, help="folder of the knowledge base")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)
    return command


def open_base(arguments: argparse.Namespace) -> KnowledgeBase:
    """Return the knowledge base that a command names."""
    from byheart.knowledge import KnowledgeBase

    return KnowledgeBase(arguments.kb)


class Bar:
    """A progress bar on standard error, drawn only on a terminal."""

    def __enter__(self) -> Progress:
        """Return what draws the bar."""
        from tqdm import tqdm

        self._bar = tqdm(disable=None, leave=False, file=sys.stderr)
        return self._show

    def __exit__(self, *_: object) -> None:
        """Clear the bar."""
        self._bar.close()

    def _show(self, done: int, total: int, what: str) -> None:
        self._bar.set_description_str(what, refresh=False)
        self._bar.total, self._bar.n = total, done
        self._bar.refresh()
