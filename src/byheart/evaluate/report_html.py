"""The parts of a report as HTML: tables, figures, and the page around them.

Owns markup and style. Loads nothing from elsewhere, and says so to the browser. Chooses no rows.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from byheart.evaluate import plots
from byheart.evaluate.report_charts import LIMIT, Chart, Group, Panel
from byheart.evaluate.report_words import clean, interval, measure, number
from byheart.evaluate.rows import Row

NONE = "\u2013"  # in the cell of a figure that was not measured
STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #595959; --paper: #fff; --grid: #ddd; --band: #f4f4f4;
  --s0: #0063a6; --s1: #b83c00; --s2: #007a55; --s3: #b0307a; --s4: #806000; --s5: #6a4fb3; --s6: #5a5a5a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eee; --soft: #b3b3b3; --paper: #161616; --grid: #444; --band: #242424;
    --s0: #6db9f2; --s1: #ff9a5c; --s2: #4fd1a1; --s3: #f08fc4; --s4: #e6be4a; --s5: #b9a3f5; --s6: #bdbdbd; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--grid); }
a { color: var(--s0); }
nav ul, ul.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
.scroll { overflow-x: auto; margin: 0 0 1.5rem; } .scroll:focus-visible { outline: 2px solid var(--s0); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-top: 1px solid var(--grid); }
thead th { max-width: 11rem; vertical-align: bottom; background: var(--band); }
tbody th { position: sticky; left: 0; max-width: 11rem; background: var(--paper); font-weight: 600; }
td.figure { text-align: right; white-space: nowrap; } thead th.figure { text-align: right; }
td small { display: block; color: var(--soft); }
figure { margin: 1.5rem 0; } figcaption { font-weight: 600; } figure p { margin: .2rem 0; color: var(--soft); }
.panels { display: flex; flex-wrap: wrap; gap: 1rem; }
.panels > div { flex: 1 1 18rem; max-width: 36rem; min-width: 0; }
svg.plot { width: 100%; height: auto; } svg.plot * { stroke-linejoin: round; stroke-linecap: butt; }
svg.plot text { font-family: inherit !important; } summary { cursor: pointer; }
"""


def page(title: str, body: Sequence[str]) -> str:
    """Return a whole page.

    Args:
        title: Its title.
        body: Elements of its body.

    Returns:
        The page, with its style inside and a rule that forbids loading anything.
    """
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{text(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>\n",
        )
    )


def text(words: str) -> str:
    """Return words so that a browser shows them as they are, in an element or an attribute."""
    return html.escape(clean(words))


def grid(caption: str, header: Sequence[str], body: Sequence[Sequence[str]], figures_from: int = 1) -> str:
    """Return a table whose first column names the rows; too wide a table scrolls by itself.

    Args:
        caption: What it shows; also its name for screen readers.
        header: Words over the columns.
        body: Cells as markup, the first of each row its heading.
        figures_from: First column that holds figures, aligned to the right.

    Returns:
        The element.
    """
    kinds = ["" if place < figures_from else ' class="figure"' for place in range(len(header))]
    heads = "".join(f'<th scope="col"{kind}>{text(words)}</th>' for kind, words in zip(kinds, header, strict=True))
    lines = [
        f'<tr><th scope="row">{line[0]}</th>'
        + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds[1:], line[1:], strict=True))
        + "</tr>"
        for line in body
    ]
    return "\n".join(
        (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>',
            f"<caption>{text(caption)}</caption>",
            f"<thead><tr>{heads}</tr></thead>",
            "<tbody>",
            *lines,
            "</tbody></table></div>",
        )
    )


def systems_table(group: Group) -> str:
    """Return a suite's split as a table: systems down, measures across, each figure with its interval and n."""
    columns = list(dict.fromkeys((row.measure, measure(row)) for row in group.rows.values()))
    body = [
        [
            text(system),
            *(
                _cell(row) if row is not None and measure(row) == shown else NONE
                for name, shown in columns
                for row in [group.rows.get((system, name))]
            ),
        ]
        for system in group.systems
    ]
    return grid(group.name, ["system", *(shown for _, shown in columns)], body)


def _cell(row: Row) -> str:
    ends = interval(row)
    return f"{number(row.value, row.unit)}<small>{f'{ends}<br>' if ends else ''}n&nbsp;{row.n:,}</small>"


def origins_table(suite: str, rows: Sequence[Row]) -> str:
    """Return how a suite's rows were measured: a line per run, with the splits that are from it."""
    runs: dict[tuple[str, str, str, str, int], dict[str, None]] = {}
    for row in rows:
        runs.setdefault((row.command, row.commit, row.date, row.cpu, row.seed), {})[row.split] = None
    body = [
        [f"<code>{text(command)}</code>", text(commit), text(date), text(cpu), str(seed), text("; ".join(splits))]
        for (command, commit, date, cpu, seed), splits in runs.items()
    ]
    return grid(f"How {suite} was measured", ["command", "commit", "date", "cpu", "seed", "splits"], body, 6)


def figure(chart: Chart, ident: str) -> str:
    """Return a chart: title, drawings with their text alternatives, legend, and its numbers as a table.

    Args:
        chart: The chart.
        ident: Id of the element, unique in the page.

    Returns:
        The element.
    """
    names = _names(chart)
    drawn = [
        f"<div>{f'<p>{text(panel.title)}</p>' if panel.title else ''}{plots.draw(panel, names, title, place)}</div>"
        for number_, panel in enumerate(chart.panels, start=1)
        for title, place in [(f"{chart.title} {panel.title}".strip(), f"{ident}-{number_}")]
    ]
    return "\n".join(
        (
            f'<figure id="{ident}">',
            f"<figcaption>{text(chart.title)}</figcaption>",
            f"<p>{text(chart.note)}</p>",
            f'<div class="panels">{"".join(drawn)}</div>',
            _legend(chart, names),
            f"<details><summary>Numbers of this chart</summary>{_numbers(chart)}</details>",
            "</figure>",
        )
    )


def _names(chart: Chart) -> list[str]:
    found = [one.name for panel in chart.panels for one in (panel.series if isinstance(panel, Panel) else panel.boxes)]
    return list(dict.fromkeys(found))


def _legend(chart: Chart, names: Sequence[str]) -> str:
    """Return the legend in HTML, where long names wrap; boxes carry their names, and panels of one series a title."""
    if not all(isinstance(panel, Panel) and not (panel.title and len(names) == 1) for panel in chart.panels):
        return ""
    entries = []
    for name in names:
        colour, glyph = plots.style(names, name)
        shade = "--ink" if name == LIMIT else f"--s{colour}"
        entries.append(f'<li><span aria-hidden="true" style="color: var({shade})">{glyph}</span> {text(name)}</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _numbers(chart: Chart) -> str:
    body = [
        [
            text(row.system),
            text(row.split),
            text(measure(row)),
            number(row.value, row.unit),
            interval(row),
            f"{row.n:,}",
        ]
        for row in chart.rows
    ]
    return grid(f"Numbers: {chart.title}", ["system", "split", "measure", "value", "95 % interval", "n"], body, 3)
