"""Draws a report's panels as SVG that stands inside an HTML page: its colours are the page's, its text stays text.

Owns what matplotlib is asked for and how its output is made fit. Needs the extra `report`. Knows no rows.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from byheart.errors import MissingExtraError
from byheart.evaluate.report_charts import Axis, Box, Boxes, Mark, Panel, Point, Series
from byheart.evaluate.report_words import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = 7  # series colours that the page defines, --s0 to --s6
GLYPHS = "●■▲◆▼✚✖★"  # as MARKERS, for legends
MARKERS = "os^DvPX*"
INK, SOFT = "#010100", "#010101"  # stand-ins, replaced by the page's variables: light and dark are one drawing
WIDTH, HEIGHT, ROW = 5.0, 3.6, 0.42  # inches; narrow, so that text stays legible on a phone
NAME_CHARACTERS = 20
# Ticks within a decade, by how many times the longest time is the shortest.
TICKS = ((300, (1.0,)), (5, (1.0, 2.0, 5.0)), (0, (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)))
LEVEL_TICKS = 5  # more words than these would run into each other
_STAND_IN = re.compile(r"#0102([0-9a-f]{2})")
_TAG = re.compile(r"<[^>]*>")
_UNUSED = re.compile(r"<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)


def draw(panel: Panel | Boxes, names: Sequence[str], title: str, ident: str) -> str:
    """Return a panel as an SVG element with a title and a text alternative; the same panel gives the same text.

    Args:
        panel: What to draw.
        names: Names of series in the order of the legend, which gives each its colour and marker.
        title: Title that is read out.
        ident: Id of the element, unique in the page.

    Returns:
        The element.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "drawing a report needs the package matplotlib; run: pip install 'byheart[report]'"
        ) from error
    written = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # only measured with this font, not drawn
        matplotlib.rcdefaults()  # what a user's matplotlibrc says must not change the bytes
        matplotlib.rcParams.update(_settings(ident))
        figure = Figure((WIDTH, _height(panel)), layout="constrained")
        axes = figure.subplots()
        if isinstance(panel, Boxes):
            _draw_boxes(axes, panel.boxes, names)
        else:
            _draw_panel(axes, panel, names)
        _save(figure, written)
    return _fitted(written.getvalue(), panel.summary, title, ident)


def style(names: Sequence[str], name: str) -> tuple[int, str]:
    """Return the number of a series' colour and its marker as a character.

    Args:
        names: Names in the order of the legend.
        name: One of them.

    Returns:
        Colour and character; 56 pairs before any comes again.
    """
    place = names.index(name)
    return place % COLOURS, GLYPHS[place % len(GLYPHS)]


def _settings(ident: str) -> dict[Any, object]:
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(inked, INK),
        "svg.fonttype": "none",
        "svg.hashsalt": ident,
        "text.parse_math": False,  # a system's name may hold a dollar sign
        "font.family": ["DejaVu Sans"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": SOFT,
        "grid.linewidth": 0.6,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
    }


def _height(panel: Panel | Boxes) -> float:
    return 0.8 + ROW * len(panel.boxes) if isinstance(panel, Boxes) else HEIGHT


def _save(figure: Figure, written: io.StringIO) -> None:
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # the date, above all
    figure.savefig(written, format="svg", metadata=nothing)


def _colour(names: Sequence[str], series: Series | Box) -> str:
    if isinstance(series, Series) and series.mark is Mark.LIMIT:
        return INK
    return f"#0102{style(names, series.name)[0]:02x}"


def _draw_panel(axes: Axes, panel: Panel, names: Sequence[str]) -> None:
    for series in panel.series:
        _draw_series(axes, series, _colour(names, series), MARKERS[names.index(series.name) % len(MARKERS)])
    if panel.has_zero:
        axes.axhline(0, color=INK, linewidth=0.8)
    _set_axis(axes, "x", panel.x)
    _set_axis(axes, "y", panel.y)
    if panel.has_diagonal:
        axes.autoscale(enable=False)
        axes.axline((0, 0), slope=1, color=INK, linewidth=0.9, linestyle=":")


def _draw_series(axes: Axes, series: Series, colour: str, marker: str) -> None:
    points = series.points
    xs, ys = [point.x for point in points], [point.y for point in points]
    if series.mark is Mark.LIMIT and len(points) == 1:
        axes.axhline(ys[0], color=colour, linewidth=1.2, linestyle="--")
    elif series.mark is not Mark.POINTS:
        axes.plot(xs, ys, color=colour, linewidth=1.5, linestyle="--" if series.mark is Mark.LIMIT else "-")
    for point in points:
        _draw_ends(axes, point, colour)
    axes.scatter(
        xs, ys, [16 + 48 * point.weight for point in points], color=colour, marker=marker, zorder=3, clip_on=False
    )


def _draw_ends(axes: Axes, point: Point, colour: str) -> None:
    """Draw intervals from end to end: a bootstrap's need not hold the value, which error bars would insist on."""
    if point.y_ends is not None:
        axes.vlines([point.x], *point.y_ends, color=colour, linewidth=1.2)
    if point.x_ends is not None and point.x_ends[0] < point.x_ends[1]:
        axes.hlines([point.y], *point.x_ends, color=colour, linewidth=1.2)


def _set_axis(axes: Axes, which: str, axis: Axis) -> None:
    low, high = axis.ends
    if which == "x":
        axes.set_xlim(low, high)
        axes.set_xlabel(axis.label)
        if axis.ticks:
            axes.set_xticks([at for at, _ in axis.ticks], [text for _, text in axis.ticks])
            if len(axis.ticks) > LEVEL_TICKS:
                for label in axes.get_xticklabels():
                    label.set(rotation=45, ha="right", rotation_mode="anchor")
    else:
        axes.set_ylim(low, high)
        axes.set_ylabel(axis.label)


def _draw_boxes(axes: Axes, boxes: Sequence[Box], names: Sequence[str]) -> None:
    from matplotlib.patches import Rectangle

    _set_milliseconds(axes, [value for box in boxes for value in box.quantiles.values()])
    axes.set_ylim(len(boxes) - 0.4, -0.6)  # the first on top
    axes.set_yticks(range(len(boxes)), [_shortened(box.name) for box in boxes])
    axes.grid(visible=False, axis="y")
    for place, box in enumerate(boxes):
        colour, held = _colour(names, box), box.quantiles
        if 25 in held and 75 in held:
            face = Rectangle((held[25], place - 0.26), held[75] - held[25], 0.52, facecolor=colour, alpha=0.35)
            axes.add_patch(face)
        axes.hlines([place], *_whiskers(held), color=colour, linewidth=1.2)
        axes.vlines([held[50]], place - 0.26, place + 0.26, color=colour, linewidth=2.4)
        tail = [held[at] for at in (95, 99) if at in held]
        axes.scatter(tail, [place] * len(tail), 22, color=colour, zorder=3)


def _set_milliseconds(axes: Axes, every: Sequence[float]) -> None:
    """Set the logarithmic axis before anything is drawn, with ticks in each decade as its length allows."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_xlim(min(every) / 1.25, max(every) * 1.25)
    axes.set_xlabel("milliseconds")
    spread = max(every) / min(every)
    subs = next(found for least, found in TICKS if spread >= least)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _whiskers(held: Mapping[int, float]) -> tuple[float, float]:
    """Return p10 and p90, or what is next to them: then the whisker leads to the dot of p95 or p99."""
    return min(held.values()), held.get(90, max(held.values()))


def _shortened(name: str) -> str:
    name = clean(name)
    return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"


def _fitted(svg: str, summary: str, title: str, ident: str) -> str:
    """Return matplotlib's document as an element: unique ids, the page's colours and font, no outside reference."""
    inner = _TAG.sub(lambda found: _fitted_tag(found[0], ident), _UNUSED.sub("", svg[svg.index("<svg") :]))
    view, rest = inner.split('viewBox="', 1)[1].split('"', 1)
    return (
        f'<svg class="plot" role="img" aria-labelledby="{ident}-title {ident}-desc" viewBox="{view}">'
        f'<title id="{ident}-title">{html.escape(clean(title))}</title>'
        f'<desc id="{ident}-desc">{html.escape(clean(summary))}</desc>{rest.split(">", 1)[1].strip()}'
    )


def _fitted_tag(tag: str, ident: str) -> str:
    tag = tag.replace('xlink:href="#', f'href="#{ident}-').replace("url(#", f"url(#{ident}-")
    tag = tag.replace(' id="', f' id="{ident}-')
    tag = tag.replace(INK, "var(--ink)").replace(SOFT, "var(--grid)")
    return _STAND_IN.sub(lambda found: f"var(--s{int(found[1], 16)})", tag)
