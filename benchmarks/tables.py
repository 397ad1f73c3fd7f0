"""Writes the tables of docs/benchmarks.md from the result files: `python -m benchmarks.tables`."""

from __future__ import annotations

import re
from pathlib import Path

from byheart.evaluate.rows import read, table

RESULTS = Path("benchmarks/results")
PAGE = Path("docs/benchmarks.md")
MARK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, results: Path) -> str:
    """Return the page with every marked place filled from its result file; a place without one stays as it is."""

    def fill(match: re.Match[str]) -> str:
        path = results / f"{match[2]}.json"
        return f"{match[1]}\n{table(read(path))}\n\n{match[3]}" if path.is_file() else match[0]

    return MARK.sub(fill, page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8"), RESULTS), "utf-8")
