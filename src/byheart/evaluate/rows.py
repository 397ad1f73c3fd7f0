"""Result files: one row per figure, replaced when measured anew, and tables made from them.

Owns the format of `benchmarks/results/<suite>.json`. Computes nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from byheart.errors import EvaluationError

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where, when and how figures were measured.

    Attributes:
        command: Command that measures them again.
        commit: Commit of the code, with `-changed` where files differed from it.
        date: UTC, ISO 8601 to the second.
        cpu: Model of the processor.
    """

    command: str
    commit: str
    date: str
    cpu: str


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        suite: Suite, the file's name.
        split: Questions it is about.
        system: What was measured.
        measure: What about it.
        unit: `share`, `seconds`, `calls per question`, …
        value: The figure.
        n: Questions it rests on.
        low: Lower end of the 95 % interval, None where none applies.
        high: Upper end, None where none applies.
        seed: Seed of the bootstrap.
        command: See `Origin`.
        commit: See `Origin`.
        date: See `Origin`.
        cpu: See `Origin`.
    """

    suite: str
    split: str
    system: str
    measure: str
    unit: str
    value: float
    n: int
    low: float | None
    high: float | None
    seed: int
    command: str
    commit: str
    date: str
    cpu: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a figure is about; of two rows with one key the later stands."""
        return (self.suite, self.split, self.system, self.measure)


def origin(command: str) -> Origin:
    """Return where, when and how figures are measured in this process, as far as can be found out.

    Args:
        command: Command that measures them again.

    Returns:
        The origin; commit and processor are `unknown` where they can't be found.
    """
    return Origin(command, _commit(), datetime.now(UTC).isoformat(timespec="seconds"), _cpu())


def merge(path: Path, rows: Sequence[Row]) -> list[Row]:
    """Write rows into a result file, in place of those with the same key; a kill leaves the old file or the new.

    Args:
        path: The file; it is created if need be.
        rows: New rows.

    Returns:
        All rows of the file, in order of first writing.

    Raises:
        EvaluationError: The file can't be read, or a new row is not valid.
    """
    held = {row.key: row for row in (read(path) if path.exists() else [])}
    held |= {_checked(row, str(path)).key: row for row in rows}
    lines = ",\n".join(
        json.dumps(dataclasses.asdict(row), ensure_ascii=False, allow_nan=False) for row in held.values()
    )
    _replace(path, f"[\n{lines}\n]\n" if lines else "[]\n")
    return list(held.values())


def read(path: Path) -> list[Row]:
    """Return the rows of a result file.

    Args:
        path: The file.

    Returns:
        Rows in the file's order.

    Raises:
        EvaluationError: The file is missing, is no list of rows, or a row has a wrong field.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EvaluationError(f"{path} can't be read ({error}); delete it and run the suite again") from error
    if not isinstance(found, list):
        raise EvaluationError(f"{path} must hold a list of rows, got {type(found).__name__}; run the suite again")
    return [_row(fields, f"{path}, row {number}") for number, fields in enumerate(found, start=1)]


def table(rows: Sequence[Row]) -> str:
    """Return rows as Markdown: a table per suite and split, measures down, systems across, each with its interval."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.suite, row.split), []).append(row)
    return "\n\n".join(_one_table(suite, split, group) for (suite, split), group in groups.items())


def _one_table(suite: str, split: str, rows: Sequence[Row]) -> str:
    systems = list(dict.fromkeys(row.system for row in rows))
    lines = {
        (row.measure, row.n): [row.measure if row.unit == "share" else f"{row.measure} ({row.unit})", f"{row.n:,}"]
        for row in rows
    }
    cells = {(row.measure, row.n, row.system): _cell(row) for row in rows}
    body = [[*line, *(cells.get((*key, system), "") for system in systems)] for key, line in lines.items()]
    header = [["measure", "n", *systems], ["---", "---:", *("---:" for _ in systems)]]
    return "\n".join([f"**{suite}, {split}**", "", *(f"| {' | '.join(line)} |" for line in header + body)])


def _cell(row: Row) -> str:
    if row.low is None or row.high is None:
        return f"{row.value:.3f}"
    return f"{row.value:.3f} ({row.low:.3f} to {row.high:.3f})"


def _row(fields: Any, place: str) -> Row:
    names = [field.name for field in dataclasses.fields(Row)]
    if not isinstance(fields, dict) or set(fields) != set(names):
        seen = sorted(fields) if isinstance(fields, dict) else type(fields).__name__
        raise EvaluationError(
            f"{place} must have exactly the fields {', '.join(names)}, got {seen}; run the suite again"
        )
    return _checked(Row(*(fields[name] for name in names)), place)


def _checked(row: Row, place: str) -> Row:
    texts = (row.suite, row.split, row.system, row.measure, row.unit, row.command, row.commit, row.date, row.cpu)
    counts = (row.n, row.seed)
    numbers = [number for number in (row.value, row.low, row.high) if number is not None]
    if not all(isinstance(text, str) and text for text in texts):
        raise EvaluationError(f"{place}: texts must be strings that are not empty, got {texts!r}; run the suite again")
    if not all(type(count) is int and count >= 0 for count in counts):
        raise EvaluationError(f"{place}: n and seed must be whole numbers from 0, got {counts!r}; run the suite again")
    if row.value is None or not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        raise EvaluationError(
            f"{place}: {row.measure} must be finite with finite ends, got {numbers!r}; check its data"
        )
    if (row.low is None) != (row.high is None) or (row.low is not None and row.high is not None and row.low > row.high):
        raise EvaluationError(f"{place}: low and high must be an interval, got {row.low} to {row.high}; measure again")
    return row


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)  # mkstemp's 0600 would make a committed file unreadable to others
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _commit() -> str:
    """Return the commit this package's own files are at; the folder a user works in is another project."""
    found = _git("rev-parse", "--short=12", "HEAD")
    return (found + ("-changed" if _git("status", "--porcelain", "--", ".") else "")) if found else UNKNOWN


def _git(*arguments: str) -> str:
    folder = Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu() -> str:
    named = Path("/proc/cpuinfo")
    lines: Iterable[str] = named.read_text("utf-8", "replace").splitlines() if named.is_file() else ()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, models), platform.processor() or platform.machine() or UNKNOWN)
