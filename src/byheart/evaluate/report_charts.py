"""Which charts a set of rows allows, and what stands in each: points, lines, boxes, and their text alternative.

Owns the choice of rows by the names of measures. Knows no markup and does not draw.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from byheart.evaluate.report_words import number
from byheart.evaluate.rows import Row

QUALITIES: Mapping[str, str] = {"nq": "answer_precision"}  # by suite, where it is not accuracy
LIMIT = "oracle"
QUANTILES = (10, 25, 50, 75, 90, 95, 99)
UNIT_ENDS = (-0.02, 1.02)  # a share's axis, with room for half a marker


class Mark(enum.Enum):
    """How a series is drawn."""

    POINTS = "points"
    LINE = "line"
    LIMIT = "dashed line"


@dataclass(frozen=True, slots=True)
class Point:
    """A point with its 95 % intervals, None where none applies.

    Attributes:
        x: Across.
        y: Up.
        x_ends: Interval across.
        y_ends: Interval up.
        weight: Size of the marker, 0 to 1.
    """

    x: float
    y: float
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    weight: float = 0.5


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one system."""

    name: str
    points: tuple[Point, ...]
    mark: Mark = Mark.POINTS


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its label, its ends (None: as the data wants), and ticks where they are not numbers."""

    label: str
    ends: tuple[float | None, float | None] = (None, None)
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing of points and lines.

    Attributes:
        title: What distinguishes it from its neighbours, empty if it has none.
        summary: Text alternative.
        x: Axis across.
        y: Axis up.
        series: What is drawn.
        has_diagonal: Whether the line y = x is drawn.
        has_zero: Whether the line y = 0 is drawn.
    """

    title: str
    summary: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    has_diagonal: bool = False
    has_zero: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """One system's quantiles, in milliseconds by percent."""

    name: str
    quantiles: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Boxes:
    """One drawing of quantiles on a logarithmic axis of milliseconds."""

    title: str
    summary: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Drawings that belong together.

    Attributes:
        suite: Suite its rows are from.
        title: Title.
        note: How to read it.
        panels: The drawings.
        rows: Rows it shows.
    """

    suite: str
    title: str
    note: str
    panels: tuple[Panel | Boxes, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one suite and split, found by system and measure."""

    suite: str
    split: str
    rows: Mapping[tuple[str, str], Row] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What a title says of it."""
        return f"{self.suite}, {self.split}"

    @property
    def systems(self) -> tuple[str, ...]:
        """Its systems, in the order of the rows."""
        return tuple(dict.fromkeys(system for system, _ in self.rows))

    def curve(self, system: str, pattern: str) -> list[tuple[float, Row]]:
        """Return a system's rows whose measure is the pattern with a number at its end, by that number."""
        named = re.compile(re.escape(pattern) + r"(\d+(?:\.\d+)?)")
        found = [
            (float(match[1]), row)
            for (name, measure), row in self.rows.items()
            if name == system and (match := named.fullmatch(measure))
        ]
        return sorted(found, key=lambda pair: pair[0])


def groups(rows: Sequence[Row]) -> tuple[Group, ...]:
    """Return rows by suite and split, in the order of first appearance; of two with one key the later stands."""
    found: dict[tuple[str, str], dict[tuple[str, str], Row]] = {}
    for row in rows:
        found.setdefault((row.suite, row.split), {})[row.system, row.measure] = row
    return tuple(Group(suite, split, held) for (suite, split), held in found.items())


def charts(rows: Sequence[Row]) -> tuple[Chart, ...]:
    """Return every chart whose rows are there, suite by suite."""
    found = groups(rows)
    return tuple(
        chart
        for suite in dict.fromkeys(group.suite for group in found)
        for chart in _of_suite(suite, [group for group in found if group.suite == suite])
    )


def _of_suite(suite: str, found: Sequence[Group]) -> Iterator[Chart]:
    if suite == "frequency":
        yield from _gains(found)
    for group in found:
        for chart in (*_trade_offs(group), _reliability(group), _latency(group), _risk(group)):
            if chart is not None:
                yield chart


def _trade_offs(group: Group) -> Iterator[Chart | None]:
    own = QUALITIES.get(group.suite, "accuracy")
    yield _trade_off(group, own, with_points=True)
    if own != "accuracy":  # budgets are reported by accuracy in every suite; both on one axis would mislead
        yield _trade_off(group, "accuracy", with_points=False)


def _trade_off(group: Group, quality: str, *, with_points: bool) -> Chart | None:
    series, used, said = list[Series](), list[Row](), list[str]()
    for system in group.systems:
        line = _pairs(group, system, quality)
        single = [(group.rows.get((system, "retrieval_calls")), group.rows.get((system, quality)))]
        points = [(calls, right) for calls, right in single if calls is not None and right is not None and with_points]
        for pairs, mark in ((line, Mark.LINE), (points, Mark.POINTS)):
            if pairs:
                drawn = tuple(Point(x.value, y.value, _ends(x), _ends(y)) for x, y in pairs)
                series.append(Series(system, drawn, Mark.LIMIT if system == LIMIT else mark))
                used += [row for pair in pairs for row in pair]
                said += [f"{system} {number(y.value)} at {number(x.value, x.unit)} calls" for x, y in pairs]
    if not series:
        return None
    name = quality.replace("_", " ")
    return Chart(
        group.suite,
        f"{name.capitalize()} against retrieval rate: {group.name}",
        f"Up and to the left is better: more is right with fewer retrievals. Dashed: {LIMIT}, the limit of any route."
        if LIMIT in group.systems
        else "Up and to the left is better: more is right with fewer retrievals.",
        (Panel("", _listed(said), _rate(used), Axis(name), tuple(series)),),
        tuple(used),
    )


def _rate(rows: Sequence[Row]) -> Axis:
    """Return the axis of retrievals: from none to one per question at least, so that charts can be compared."""
    most = max(row.high or row.value for row in rows if row.measure.startswith("retrieval_calls"))
    return Axis("retrieval calls per question", (-0.04, 1.04 * max(most, 1)))


def _pairs(group: Group, system: str, quality: str) -> list[tuple[Row, Row]]:
    budgets = dict(group.curve(system, "retrieval_calls@budget"))
    return [(budgets[at], row) for at, row in group.curve(system, f"{quality}@budget") if at in budgets]


def _gains(found: Sequence[Group]) -> Iterator[Chart]:
    """Yield a chart per set of bins; a limit on questions is in the split's name behind the bin's number."""
    sets: dict[str, list[tuple[int, Group]]] = {}
    for group in found:
        if match := re.fullmatch(r"bin(\d+)(.*)", group.split, re.DOTALL):
            sets.setdefault(match[2], []).append((int(match[1]), group))
    for suffix, bins in sets.items():
        chart = _gain(suffix, [group for _, group in sorted(bins, key=lambda pair: pair[0])])
        if chart is not None:
            yield chart


def _gain(suffix: str, bins: Sequence[Group]) -> Chart | None:
    series, used, said = list[Series](), list[Row](), list[str]()
    lowest = [group.rows.get(("byheart", "popularity")) for group in bins]
    for aside, measure in ((-0.07, "gain_memory"), (0.07, "gain_retrieval")):
        held = [(place, row) for place, group in enumerate(bins) if (row := group.rows.get(("byheart", measure)))]
        if held:
            points = tuple(Point(place + aside, row.value, None, _ends(row)) for place, row in held)
            series.append(Series(measure.replace("_", " of "), points, Mark.LINE))
            used += [row for _, row in held]
            said += [f"{measure.replace('_', ' of ')} in {row.split} {number(row.value)}" for _, row in held]
    if not series:
        return None
    ticks = tuple(
        (float(place), group.split.removesuffix(suffix) if row is None else f"\u2265 {_short(row.value)}")
        for place, (group, row) in enumerate(zip(bins, lowest, strict=True))
    )
    axes = Axis("popularity, lowest in the bin", (-0.5, len(bins) - 0.5), ticks), Axis("gain")
    return Chart(
        "frequency",
        f"Gain by popularity: frequency{suffix}",
        "What memory and retrieval add, from the least popular questions to the most; above 0 it helps.",
        (Panel("", _listed(said), *axes, tuple(series), has_zero=True),),
        (*(row for row in lowest if row is not None), *used),
    )


def _reliability(group: Group) -> Chart | None:
    panels, used = list[Panel](), list[Row]()
    for system in group.systems:
        held = group.curve(system, "reliability@")
        if held:
            error = group.rows.get((system, "ece"))
            most = max(row.n for _, row in held) or 1
            points = tuple(Point(at, row.value, None, _ends(row), row.n / most) for at, row in held)
            said = [f"{number(row.value)} right at confidence {at:g}, n {row.n:,}" for at, row in held]
            title = system if error is None else f"{system}, calibration error {number(error.value)}"
            axes = Axis("confidence", UNIT_ENDS), Axis("share right", UNIT_ENDS)
            panels.append(Panel(title, _listed(said), *axes, (Series(system, points),), has_diagonal=True))
            used += [row for _, row in held] + ([error] if error else [])
    if not panels:
        return None
    note = "On the diagonal, confidence is the share that is right. Larger markers rest on more questions."
    return Chart(group.suite, f"Reliability: {group.name}", note, tuple(panels), tuple(used))


def _latency(group: Group) -> Chart | None:
    boxes, used = list[Box](), list[Row]()
    for system in group.systems:
        held = {at: row for at in QUANTILES if (row := group.rows.get((system, f"seconds_p{at}")))}
        if 50 in held and len(held) > 1 and all(row.value > 0 for row in held.values()):  # the axis is logarithmic
            boxes.append(Box(system, {at: 1_000 * row.value for at, row in held.items()}))
            used += held.values()
    if not boxes:
        return None
    said = [
        f"{box.name} " + ", ".join(f"p{at} {number(value, 'ms')} ms" for at, value in box.quantiles.items())
        for box in boxes
    ]
    note = "Box: the middle half of the questions, its line the median; whiskers: p10, p90; dots: p95, p99."
    return Chart(
        group.suite, f"Latency: {group.name}", note, (Boxes("", _listed(said), tuple(boxes)),), tuple(used)
    )  # fmt: skip


def _risk(group: Group) -> Chart | None:
    asked, covered, used = list[Series](), list[Series](), list[Row]()
    said: tuple[list[str], list[str]] = ([], [])
    for place, (pattern, into) in enumerate((("risk_observed@", asked), ("coverage_at_risk@", covered))):
        for system in group.systems:
            held = group.curve(system, pattern)
            if held:
                points = tuple(Point(at, row.value, None, _ends(row)) for at, row in held)
                into.append(Series(system, points, Mark.LINE))
                used += [row for _, row in held]
                said[place].extend(f"{system} {number(row.value)} at risk {at:g}" for at, row in held)
    if not asked:
        return None
    x = Axis("risk asked", (0, None))
    panels = [
        Panel("risk observed", _listed(said[0]), x, Axis("risk observed", (0, None)), tuple(asked), has_diagonal=True)
    ]
    if covered:
        panels.append(Panel("coverage", _listed(said[1]), x, Axis("coverage", UNIT_ENDS), tuple(covered)))
    note = "On or below the diagonal, no more answers are wrong than was asked."
    return Chart(group.suite, f"Risk asked against observed: {group.name}", note, tuple(panels), tuple(used))


def _ends(row: Row) -> tuple[float, float] | None:
    return None if row.low is None or row.high is None else (row.low, row.high)


def _listed(parts: Sequence[str]) -> str:
    return "; ".join(parts) + "."


def _short(value: float) -> str:
    """Return a count in few characters, for ticks that stand close."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
