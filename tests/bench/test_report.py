import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from bench.report import Figure, charts, line, save, show

FIGURES = [
    Figure("v2 produce: CPU", "s/GB", None, 1.5, 1.8, "<= 1.3 x relay: 1.20", True),
    Figure("p50", "ms", 0.1, 0.2, 1234.5),
]


def test_the_table_has_each_figure_with_its_goal() -> None:
    out = StringIO()
    show(FIGURES, "title", Console(file=out, width=140))
    for text in ("title", "v2 produce: CPU", "1.50", "1.80", "<= 1.3 x relay: 1.20", "1,234"):
        assert text in out.getvalue()


def test_json_holds_the_same(tmp_path: Path) -> None:
    save(FIGURES, tmp_path / "figures.json")
    loaded = json.loads((tmp_path / "figures.json").read_text())
    assert [Figure(**each) for each in loaded] == FIGURES


def test_a_figure_is_one_line_while_others_are_measured() -> None:
    assert line(FIGURES[0]) == "v2 produce: CPU: bare relay 1.50, kproxy 1.80 s/GB"
    assert line(Figure("rate", "1/s", 2, None, None, note="kproxy: out of time")) == (
        "rate: direct 2.00 1/s (kproxy: out of time)"
    )
    assert line(Figure("rate", "1/s", None, None, None)) == "rate: nothing 1/s"


def test_the_table_says_why_a_figure_is_of_less() -> None:
    out = StringIO()
    show([Figure("rate", "1/s", 2, None, None, "5", False, "out of time")], "title", Console(file=out, width=140))
    assert "5; out of time" in out.getvalue()


def test_the_points_of_a_curve_are_a_chart() -> None:
    points = [
        Figure("", "", None, 2.0, 3.0, curve="size", at="1 kB"),
        Figure("", "", None, 4.0, 5.0, curve="size", at="9"),
    ]
    assert charts([*FIGURES, *points]).splitlines() == [
        "```mermaid",
        "xychart-beta",
        '    x-axis "size" ["1 kB", "9"]',
        '    y-axis "CPU, kproxy to bare relay" 0 --> 3',
        "    line [1.50, 1.25]",
        "```",
    ]
    assert charts(FIGURES) == ""
