"""The command that turns result files into one page.

Owns its arguments and what it prints. Holds no logic.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command.

    Args:
        commands: Where it is added.
    """
    report = commands.add_parser("report", help="turn result files into one HTML page with tables and charts")
    report.set_defaults(run=_report)
    report.add_argument("results", type=Path, help="folder of the result files")
    report.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), help="page to write (default report.html)"
    )


def _report(arguments: argparse.Namespace) -> None:
    from byheart.evaluate.report import write_report

    rows = write_report(arguments.results, arguments.output)
    suites = len({row.suite for row in rows})
    print(f"{len(rows):,} figures of {suites} suites written to {arguments.output}")
