"""One HTML page from a folder of result files: tables of every figure, charts of those that have a chart.

Owns what the page holds and in which order, and how it is written. Measures nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from byheart.errors import EvaluationError
from byheart.evaluate import report_html
from byheart.evaluate.report_charts import Chart, Group, charts, groups
from byheart.evaluate.rows import Row, read

TITLE = "byheart: what was measured"
INTRODUCTION = (
    "Each figure stands with its 95 % interval and n, the questions it rests on. Shares run from 0 to 1; a figure "
    "with a sign is a paired difference on the same questions. How each was measured stands below its tables."
)
SUFFIXES = (".html", ".htm")


def write_report(results: Path, out: Path) -> list[Row]:
    """Write a folder's result files as one page; the same files give the same bytes, a kill leaves the old page.

    Args:
        results: Folder of result files.
        out: The page, a file ending in .html; it is replaced.

    Returns:
        The rows the page shows.

    Raises:
        EvaluationError: The folder, a file in it or a row is not as it should be, or the page can't be written.
        MissingExtraError: There is something to draw, and matplotlib is not installed.
    """
    target = _target(out)
    rows = read_folder(results)
    _write(target, page(rows))
    return rows


def read_folder(results: Path) -> list[Row]:
    """Return the rows of all result files of a folder, files by name.

    Args:
        results: The folder; what is below it is not read.

    Returns:
        The rows, at least one.

    Raises:
        EvaluationError: There is no such folder, no row in it, a damaged file, or a figure in two files.
    """
    if not results.is_dir():
        seen = "is a file" if results.exists() else "does not exist"
        raise EvaluationError(f"{results} {seen}; pass the folder of the result files, such as benchmarks/results")
    try:
        paths = sorted(path for path in results.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise EvaluationError(f"{results} can't be listed ({error.strerror}); give yourself rights to it") from error
    if not paths:
        raise EvaluationError(f"{results} holds no .json file; run byheart evaluate SUITE --results {results} first")
    rows = _merged({path: _read(path) for path in paths})
    if not rows:
        raise EvaluationError(f"the {len(paths)} result files in {results} hold no row; run byheart evaluate again")
    return rows


def page(rows: Sequence[Row]) -> str:
    """Return the page of some rows.

    Args:
        rows: The rows.

    Returns:
        HTML that needs nothing from elsewhere.
    """
    found, drawn = groups(rows), charts(rows)
    suites = list(dict.fromkeys(row.suite for row in rows))
    links = [f'<li><a href="#suite-{n}">{report_html.text(suite)}</a></li>' for n, suite in enumerate(suites, 1)]
    body = [f"<h1>{TITLE}</h1>", f"<p>{INTRODUCTION}</p>", f'<nav aria-label="Suites"><ul>{"".join(links)}</ul></nav>']
    body.append("<main>")
    for place, suite in enumerate(suites, 1):
        own = [chart for chart in drawn if chart.suite == suite]
        body += _section(place, suite, [group for group in found if group.suite == suite], own)
    return report_html.page(TITLE, [*body, "</main>"])


def _section(place: int, suite: str, found: Sequence[Group], drawn: Sequence[Chart]) -> list[str]:
    named = f"suite-{place}"
    figures = [report_html.figure(chart, f"{named}-chart-{n}") for n, chart in enumerate(drawn, 1)]
    shown = {row.key for chart in drawn for row in chart.rows if "@" in row.measure}
    tables = [report_html.systems_table(rest) for group in found if (rest := _without(group, shown)).rows]
    every = [row for group in found for row in group.rows.values()]
    return [
        f'<section id="{named}"><h2>{report_html.text(suite)}</h2>',
        *figures,
        *tables,
        report_html.origins_table(suite, every),
        "</section>",
    ]


def _without(group: Group, shown: set[tuple[str, str, str, str]]) -> Group:
    """Return a group without a curve's rows: they stand under its chart, and would widen the table past reading."""
    return Group(group.suite, group.split, {key: row for key, row in group.rows.items() if row.key not in shown})


def _read(path: Path) -> list[Row]:
    try:
        return read(path)
    except (RecursionError, OverflowError) as error:
        raise EvaluationError(f"{path} can't be read ({error}); delete it and run the suite again") from error


def _merged(files: Mapping[Path, Sequence[Row]]) -> list[Row]:
    """Return the rows of all files; a figure in two of them is refused, since neither is known to be the newer."""
    held: dict[tuple[str, str, str, str], tuple[Path, Row]] = {}
    for path, rows in files.items():
        for row in rows:
            other = held.get(row.key, (path, row))[0]
            if other != path:
                raise EvaluationError(
                    f"{other} and {path} both hold {row.measure} of {row.system} on {row.suite}, {row.split}; "
                    "move one of the files away"
                )
            held[row.key] = (path, row)
    return [row for _, row in held.values()]


def _target(out: Path) -> Path:
    """Return the file to replace, links followed; a result file or a device given by mistake is never replaced."""
    if out.suffix.lower() not in SUFFIXES:
        raise EvaluationError(f"the page's name must end in .html, got {out}; pass -o report.html")
    target = out.resolve()
    if target.exists() and not target.is_file():
        raise EvaluationError(f"{out} is not a file, so no page can be written there; pass another path with -o")
    return target


def _write(target: Path, content: str) -> None:
    partial = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)  # mkstemp's 0600 would hide the page from others
        os.replace(partial, target)
        partial = None
    except OSError as error:
        raise EvaluationError(
            f"{target} can't be written ({error.strerror}); free space or rights, or pass another path with -o"
        ) from error
    finally:
        if partial is not None:
            Path(partial).unlink(missing_ok=True)
