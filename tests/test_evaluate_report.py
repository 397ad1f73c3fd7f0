"""The report: what stands on the page, that it stands alone, and what bad input says."""

import dataclasses
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from byheart import cli
from byheart.errors import EvaluationError, MissingExtraError
from byheart.evaluate.report import page, write_report
from byheart.evaluate.report_charts import Chart, Mark, Panel, Point, charts
from byheart.evaluate.report_words import number
from byheart.evaluate.rows import Row, merge

VOID = {"meta", "br"}
HOSTILE = '<script>alert("1")</script> & $x$ "#010100 id="'


def row(suite: str, split: str, system: str, measure: str, value: float, **fields: Any) -> Row:
    unit = "seconds" if measure.startswith("seconds") else "share"
    made = Row(
        suite, split, system, measure, unit, value, 100, value * 0.9, value * 1.1, 7,
        f"byheart evaluate {suite} --data DIR --seed 7", "abc123", "2026-12-01T00:00:00+00:00", "a processor",
    )  # fmt: skip
    return dataclasses.replace(made, **fields)


def trade_off() -> list[Row]:
    held = [("closed-book", 0.0, 0.4), ("always-retrieve", 1.0, 0.7), ("byheart", 0.6, 0.75), ("oracle", 0.3, 0.9)]
    rows = [
        row("fever", "evaluation", system, measure, value)
        for system, calls, right in held
        for measure, value in (("retrieval_calls", calls), ("accuracy", right))
    ]
    for at in (1, 0.2, 0.5):
        rows.append(row("fever", "evaluation", "byheart", f"accuracy@budget{at}", 0.6 + at / 10))
        rows.append(row("fever", "evaluation", "byheart", f"retrieval_calls@budget{at}", at * 0.9))
    return rows


def everything() -> list[Row]:
    rows = trade_off()
    for measure, value in (("answer_precision", 0.8), ("retrieval_calls", 0.5), ("accuracy", 0.7)):
        rows.append(row("nq", "reporting", "byheart", measure, value))
    for place in range(1, 12):
        rows.append(
            row("frequency", f"bin{place}", "byheart", "popularity", 10.0**place / 4, unit="views", low=None, high=None)
        )
        rows.append(row("frequency", f"bin{place}", "byheart", "gain_memory", place / 20, unit="difference"))
        rows.append(row("frequency", f"bin{place}", "byheart", "gain_retrieval", 0.5 - place / 20, low=0, high=0.6))
    for system in ("route-memory", "route-retrieval", "route-both"):
        rows += [row("nq", "reporting", system, f"reliability@{at / 100}", at / 110, n=at) for at in range(5, 100, 10)]
    rows.append(row("nq", "reporting", "route-memory", "ece", 0.031))
    for system, scale in (("route-memory", 0.01), (HOSTILE, 0.2)):
        rows += [
            row("nq", "reporting", system, f"seconds_p{at}", scale * at / 50) for at in (10, 25, 50, 75, 90, 95, 99)
        ]
    for at in (0.01, 0.05, 0.1):
        rows.append(row("nq", "reporting", "byheart", f"risk_observed@{at}", at * 0.7, low=0.0, high=at))
        rows.append(row("nq", "reporting", "byheart", f"coverage_at_risk@{at}", 0.3 + at))
    return rows


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    for suite in ("fever", "nq", "frequency"):
        merge(folder / f"{suite}.json", [one for one in everything() if one.suite == suite])
    return folder


@pytest.fixture(scope="module")
def html() -> str:
    return page(everything())


class Reader(HTMLParser):
    """Every element with its attributes, the ones around it, and the words in it; unbalanced tags fail."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[int] = []
        self.tags: list[tuple[str, dict[str, str | None], tuple[int, ...]]] = []
        self.words: list[tuple[tuple[int, ...], str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(len(self.tags) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.tags[self.open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        self.words.append((tuple(self.open), data))

    def inside(self, place: int, tag: str) -> list[int]:
        return [n for n, (name, _, above) in enumerate(self.tags) if name == tag and place in above]

    def text(self, place: int) -> str:
        return " ".join("".join(words for above, words in self.words if place in above).split())

    def all(self, tag: str) -> list[int]:
        return [n for n, (name, _, _) in enumerate(self.tags) if name == tag]

    def tables(self) -> dict[str, list[list[str]]]:
        return {
            self.text(self.inside(table, "caption")[0]): [
                [
                    self.text(n)
                    for n in range(len(self.tags))
                    if self.tags[n][0] in ("th", "td") and line in self.tags[n][2]
                ]
                for line in self.inside(table, "tr")
            ]
            for table in self.all("table")
        }


def test_every_table_has_a_caption_and_every_heading_a_scope(html: str) -> None:
    reader = Reader(html)
    assert reader.all("table")
    for table in reader.all("table"):
        assert [len(reader.inside(table, tag)) for tag in ("caption", "thead", "tbody")] == [1, 1, 1]
    assert {reader.tags[n][1].get("scope") for n in reader.all("th")} == {"row", "col"}
    assert not [line for lines in reader.tables().values() for line in lines if len(line) != len(lines[0])]


def test_a_table_has_systems_down_measures_across_and_each_figure_its_interval_and_n(html: str) -> None:
    tables = Reader(html).tables()
    header, *body = tables["fever, evaluation"]
    assert header == ["system", "retrieval_calls", "accuracy"]  # the curve's rows stand under its chart
    assert [line[0] for line in body] == ["closed-book", "always-retrieve", "byheart", "oracle"]
    assert body[2][2].replace("\xa0", " ") == "0.7500.675 to 0.825n 100"  # a line each
    command, commit, date, cpu, seed, splits = tables["How fever was measured"][1]
    assert (command, commit, cpu, seed) == ("byheart evaluate fever --data DIR --seed 7", "abc123", "a processor", "7")
    assert (date, splits) == ("2026-12-01T00:00:00+00:00", "evaluation")


def test_every_row_is_on_the_page(html: str) -> None:
    tables = Reader(html).tables()
    cells = [line for name, lines in tables.items() if name.startswith("Numbers: ") for line in lines]
    for one in everything():
        if "@" in one.measure:
            assert [one.system.replace("\n", " "), one.split, one.measure] in [cell[:3] for cell in cells]
        else:
            header, *body = tables[f"{one.suite}, {one.split}"]
            (line,) = [line for line in body if line[0] == one.system]
            (column,) = [n for n, name in enumerate(header) if name.split(" (")[0] == one.measure]
            assert line[column].startswith(number(one.value, one.unit))


def test_every_chart_has_a_title_a_text_alternative_and_its_numbers(html: str) -> None:
    reader = Reader(html)
    titles = [reader.text(reader.inside(figure, "figcaption")[0]) for figure in reader.all("figure")]
    assert titles == [
        "Accuracy against retrieval rate: fever, evaluation",
        "Answer precision against retrieval rate: nq, reporting",
        "Reliability: nq, reporting",
        "Latency: nq, reporting",
        "Risk asked against observed: nq, reporting",
        "Gain by popularity: frequency",
    ]
    for figure in reader.all("figure"):
        (details,) = reader.inside(figure, "details")
        assert len(reader.inside(details, "table")) == len(reader.inside(details, "summary")) == 1
        for svg in reader.inside(figure, "svg"):
            named = [reader.inside(svg, tag)[0] for tag in ("title", "desc")]
            assert all(reader.text(n) for n in named)
            assert reader.tags[svg][1]["role"] == "img"
            assert reader.tags[svg][1]["aria-labelledby"] == " ".join(str(reader.tags[n][1]["id"]) for n in named)


def test_the_page_needs_nothing_from_elsewhere(html: str) -> None:
    reader = Reader(html)
    assert not re.search(r"https?:|//[a-z]|@import|@font-face", html)
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _, _ in reader.tags}
    ids = [given["id"] for _, given, _ in reader.tags if "id" in given]
    assert len(ids) == len(set(ids))
    for _, given, _ in reader.tags:
        for name, value in given.items():
            assert name != "src"
            targets = [str(value)] if name in ("href", "xlink:href") else re.findall(r"url\((.*?)\)", value or "")
            assert all(target.startswith("#") and target[1:] in ids for target in targets)


def test_colours_and_font_are_the_pages_so_that_dark_is_dark(html: str) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawn)) <= {"#010100"}  # the hostile name
    assert "prefers-color-scheme: dark" in html
    assert set(re.findall(r"var\((--\w+)\)", drawn)) <= set(re.findall(r"(--\w+):", html))


def test_a_name_with_html_in_it_is_shown_as_it_is() -> None:
    odd = row(HOSTILE, HOSTILE, HOSTILE, f"accuracy {HOSTILE}", 0.5, command=HOSTILE, cpu=HOSTILE)
    reader = Reader(page([odd]))
    assert reader.tables()[f"{HOSTILE}, {HOSTILE}"][1][0] == HOSTILE
    assert not reader.all("script")


def test_what_can_not_be_encoded_is_replaced(tmp_path: Path) -> None:
    rows = [row("odd", "a\x00b", "\ud800", measure, 1) for measure in ("seconds_p50", "seconds_p95")]
    (tmp_path / "odd.json").write_text(json.dumps([dataclasses.asdict(one) for one in rows]), "utf-8")
    write_report(tmp_path, tmp_path / "report.html")
    assert "a\ufffdb" in (tmp_path / "report.html").read_text("utf-8")


def test_the_same_results_give_the_same_bytes_in_another_process_too(results: Path, tmp_path: Path) -> None:
    write_report(results, tmp_path / "one.html")
    command = [sys.executable, "-m", "byheart", "report", str(results), "-o", str(tmp_path / "two.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert f"{len(everything())} figures of 3 suites" in done.stdout


def only(rows: list[Row]) -> Chart:
    (chart,) = charts(rows)
    return chart


def test_a_line_runs_by_budget_and_the_oracle_is_the_dashed_limit() -> None:
    (panel,) = only(trade_off()).panels
    assert isinstance(panel, Panel)
    assert [(series.name, series.mark) for series in panel.series] == [
        ("closed-book", Mark.POINTS),
        ("always-retrieve", Mark.POINTS),
        ("byheart", Mark.LINE),
        ("byheart", Mark.POINTS),
        ("oracle", Mark.LIMIT),
    ]
    assert [point.x for point in panel.series[2].points] == pytest.approx([0.18, 0.45, 0.9])
    assert "oracle 0.900 at 0.300 calls" in panel.summary


def test_bins_stand_in_the_order_of_their_numbers() -> None:
    (panel,) = only([one for one in everything() if one.suite == "frequency"]).panels
    assert isinstance(panel, Panel)
    assert [text for _, text in panel.x.ticks][:3] == ["≥ 2.5", "≥ 25", "≥ 250"]
    assert [text for _, text in panel.x.ticks][-1] == "≥ 25G"


def test_a_system_is_drawn_only_if_both_its_figures_are_there() -> None:
    assert charts([row("fever", "dev", "byheart", "accuracy", 0.5)]) == ()
    assert charts([row("fever", "dev", "byheart", "accuracy@budget0.2", 0.5)]) == ()
    assert (
        charts([row("nq", "dev", "byheart", "accuracy", 0.5), row("nq", "dev", "byheart", "retrieval_calls", 1)]) == ()
    )
    assert charts([row("nq", "dev", "byheart", "seconds_p50", 0.5)]) == ()
    assert charts([row("nq", "dev", "byheart", "coverage_at_risk@0.1", 0.5)]) == ()


def test_a_time_of_zero_has_no_place_on_a_logarithmic_axis() -> None:
    assert charts([row("nq", "dev", "x", "seconds_p50", 0.0), row("nq", "dev", "x", "seconds_p95", 1.0)]) == ()


def test_an_interval_that_does_not_hold_its_value_is_drawn_all_the_same(tmp_path: Path) -> None:
    rows = [
        row("fever", "dev", "_x", "accuracy", 0.5, low=0.6, high=0.7),
        row("fever", "dev", "_x", "retrieval_calls", 1),
    ]
    merge(tmp_path / "r" / "fever.json", rows)
    write_report(tmp_path / "r", tmp_path / "report.html")
    (panel,) = only(rows).panels
    assert isinstance(panel, Panel)
    assert panel.series[0].points == (Point(1, 0.5, (0.9, 1.1), (0.6, 0.7)),)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.5, "share", "0.500"),
        (-0.03, "difference", "\u22120.030"),
        (0.03, "difference", "+0.030"),
        (0.0000123, "share", "1.23e\u221205"),
        (0.00123456, "seconds", "0.001235"),
        (1234567.8, "bytes", "1,234,568"),
        (1e300, "bytes", "1e+300"),
    ],
)
def test_a_figure_keeps_the_digits_that_matter(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


def refused(run: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["report", *run])
    return int(str(stopped.value.code)), capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[{", "can't be read"),
        ("{}", "must hold a list"),
        ('[{"suite": "nq"}]', "must have exactly the fields"),
        ("[" * 100_000, "can't be read"),
        ("[]", "hold no row"),
        (json.dumps([dataclasses.asdict(row("nq", "dev", "x", "em", 0.5)) | {"value": 10**400}]), "can't be read"),
        (json.dumps([dataclasses.asdict(row("nq", "dev", "x", "em", 0.5)) | {"n": -1}]), "whole numbers"),
    ],
)
def test_a_damaged_file_is_named(
    content: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nq.json").write_text(content, "utf-8")
    code, said = refused([str(tmp_path), "-o", str(tmp_path / "report.html")], capsys)
    assert (code, complaint in said, str(tmp_path) in said) == (7, True, True)
    assert not (tmp_path / "report.html").exists()


def test_a_folder_that_is_missing_or_holds_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["-o", str(tmp_path / "report.html")]
    (tmp_path / "file").write_text("x", "utf-8")
    for folder, complaint in (("none", "does not exist"), ("file", "is a file"), (".", "no .json file")):
        code, said = refused([str(tmp_path / folder), *out], capsys)
        assert (code, complaint in said) == (7, True)


def test_a_figure_in_two_files_is_refused(results: Path, tmp_path: Path) -> None:
    (results / "old.json").write_bytes((results / "nq.json").read_bytes())
    with pytest.raises(EvaluationError, match=r"nq\.json and .*old\.json both hold"):
        write_report(results, tmp_path / "report.html")


def test_a_page_that_can_not_be_written_leaves_everything_as_it_was(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("x", "utf-8")
    before = (results / "nq.json").read_bytes()
    for out in (tmp_path / "folder.html", tmp_path / "file" / "report.html", results / "nq.json", Path("/dev/null")):
        code, said = refused([str(results), "-o", str(out)], capsys)
        assert (code, str(out) in said) == (7, True)
    assert (results / "nq.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.html", "results"]


def test_a_write_that_fails_keeps_the_old_page(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.html"
    out.write_text("old", "utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(EvaluationError, match="No space left"):
        write_report(results, out)
    assert out.read_text("utf-8") == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results"]


def test_without_matplotlib_the_message_has_the_command(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, said = refused([str(results), "-o", str(tmp_path / "report.html")], capsys)
    assert (code, "pip install 'byheart[report]'" in said) == (6, True)
    with pytest.raises(MissingExtraError):
        write_report(results, tmp_path / "report.html")


def test_the_command_line_loads_matplotlib_only_to_draw() -> None:
    code = "import sys, byheart.cli, byheart.evaluate.report; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
