"""A run as a table, as JSON and as a picture."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from verification.soak.run import Outcome
from verification.soak.sample import Sample
from verification.soak.verdict import Bar


def table(bars: Sequence[Bar]) -> Table:
    """What was judged."""
    made = Table("", "after the warm-up", "at the end", "at most", "")
    for bar in bars:
        figures = (f"{figure:,.1f}" for figure in (bar.first, bar.last, bar.most))
        made.add_row(bar.name, *figures, "[green]level[/]" if bar.met else "[bold red]grew[/]")
    return made


def line(sample: Sample) -> str:
    """A sample, while the run proceeds."""
    return (
        f"{sample.seconds / 60:6.1f} min, {sample.clients:,} clients: {sample.resident / 1e6:.1f} MB resident, "
        f"{sample.heap_used / 1e6:.1f} MB allocated, {sample.heap_free / 1e6:.1f} MB free in the heap, "
        f"{sample.blocks:,} objects, {sample.tasks} tasks, {sample.files} files"
    )


def save(outcome: Outcome, bars: Sequence[Bar], path: Path) -> None:
    """Writes the bars, all samples and what clients did as JSON."""
    found = asdict(outcome) | {"bars": [asdict(bar) | {"met": bar.met} for bar in bars]}
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def plot(samples: Sequence[Sample], path: Path) -> None:
    """Draws memory and counts over time. ImportError without matplotlib."""
    from matplotlib.figure import Figure  # only this needs it

    figure = Figure(figsize=(10, 8), layout="constrained")
    memory, counts = figure.subplots(2, 1, sharex=True)
    minutes = [sample.seconds / 60 for sample in samples]
    for name in ("resident", "heap_used", "heap_free"):
        memory.plot(minutes, [getattr(sample, name) / 1e6 for sample in samples], label=name.replace("_", " "))
    for name in ("files", "tasks"):
        counts.plot(minutes, [getattr(sample, name) for sample in samples], label=name)
    memory.set_ylabel("MB")
    counts.set_xlabel("minutes")
    for axes in (memory, counts):
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(path)
