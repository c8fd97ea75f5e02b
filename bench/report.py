"""Figures, and how they are shown."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One line of the table: what was measured, for each way to the broker (None where there is nothing to tell)."""

    case: str
    unit: str
    direct: float | None
    relay: float | None
    kproxy: float | None
    goal: str = ""
    met: bool | None = None
    note: str = ""
    """Why the figures are of less than was meant to be measured."""
    curve: str = ""
    at: str = ""
    """The chart that it belongs to, and its place there."""


def line(figure: Figure) -> str:
    """The figure as one line of text, to be shown while others are still measured."""
    ways = (("direct", figure.direct), ("bare relay", figure.relay), ("kproxy", figure.kproxy))
    told = ", ".join(f"{name} {_number(value)}" for name, value in ways if value is not None)
    return f"{figure.case}: {told or 'nothing'} {figure.unit}" + (f" ({figure.note})" if figure.note else "")


def show(figures: Iterable[Figure], title: str, console: Console) -> None:
    """Print the table; a goal that was missed is red."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("direct", "bare relay", "kproxy"):
        table.add_column(name, justify="right")
    table.add_column("unit")
    table.add_column("goal")
    for figure in figures:
        style = {True: "green", False: "bold red", None: ""}[figure.met]
        table.add_row(
            figure.case,
            _number(figure.direct),
            _number(figure.relay),
            f"[{style}]{_number(figure.kproxy)}[/]" if style else _number(figure.kproxy),
            figure.unit,
            "; ".join(filter(None, (figure.goal, figure.note))),
        )
    console.print(table)


def charts(figures: Iterable[Figure]) -> str:
    """A Mermaid chart of each curve: the cost of kproxy to that of the bare relay."""
    curves: dict[str, list[tuple[str, float]]] = {}
    for figure in figures:
        if figure.curve and figure.relay and figure.kproxy:
            curves.setdefault(figure.curve, []).append((figure.at, figure.kproxy / figure.relay))
    return "\n\n".join(
        "\n".join(
            (
                "```mermaid",
                "xychart-beta",
                f'    x-axis "{curve}" [{", ".join(json.dumps(at) for at, _ in points)}]',
                '    y-axis "CPU, kproxy to bare relay" 0 --> 3',
                f"    line [{', '.join(f'{ratio:.2f}' for _, ratio in points)}]",
                "```",
            )
        )
        for curve, points in curves.items()
    )


def save(figures: Iterable[Figure], path: Path) -> None:
    """Write the figures as a JSON list of objects."""
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n", encoding="utf-8")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
