"""Progress for people and for programs: a live table on a terminal, else one line for each batch."""

import sys
from typing import Self

import structlog
from rich.console import Console
from rich.live import Live
from rich.table import Table

from kproxy.control.logging import configure_logging
from kproxy.spark.pipeline.progress import BatchDone, as_json


class Display:
    """Shows what happens; use it as a context manager. This one shows nothing."""

    def say(self, text: str) -> None:
        """A stage is reached."""

    def show(self, done: BatchDone) -> None:
        """A batch is committed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""


def choose(*, json_lines: bool) -> Display:
    """JSON on stdout if that is asked for, a table if stderr is a terminal, else log lines on stderr."""
    if json_lines:
        return JsonLines()
    console = Console(stderr=True)
    return LiveTable(console) if console.is_terminal else LogLines()


class JsonLines(Display):
    """One JSON object for each batch on stdout; nothing for stages: programs wait for batches."""

    def show(self, done: BatchDone) -> None:
        sys.stdout.write(f"{as_json(done)}\n")
        sys.stdout.flush()


class LogLines(Display):
    """Structured log lines on stderr."""

    def __init__(self) -> None:
        configure_logging("info", "json")
        self._log = structlog.get_logger(subsystem="pipeline")

    def say(self, text: str) -> None:
        self._log.info(text)

    def show(self, done: BatchDone) -> None:
        self._log.info("batch committed", **done._asdict())


class LiveTable(Display):
    """One row for each query, drawn again as batches come."""

    def __init__(self, console: Console) -> None:
        self._latest: dict[str, BatchDone] = {}
        self._rows: dict[str, int] = {}
        self._stage = ""
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4)

    def say(self, text: str) -> None:
        self._stage = text

    def show(self, done: BatchDone) -> None:
        """Replaces the row of the query; rows written are counted up."""
        self._latest[done.query] = done
        for name, rows in done.rows_out.items():
            self._rows[name] = self._rows.get(name, 0) + rows

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _table(self) -> Table:
        table = Table(title=self._stage, title_justify="left", title_style="")
        for name in ("query", "batch", "rows in", "rows/s", "lag", "rows out (in all)", "last commit (UTC)", "took"):
            table.add_column(name, justify="left" if name in ("query", "rows out (in all)") else "right")
        for done in self._latest.values():
            table.add_row(*self._cells(done))
        return table

    def _cells(self, done: BatchDone) -> tuple[str, ...]:
        written = (f"{name}: {rows:,} ({self._rows[name]:,})" for name, rows in done.rows_out.items())
        return (
            done.query,
            str(done.batch),
            f"{done.rows_in:,}",
            f"{done.rows_per_second:,.0f}",
            "-" if done.lag is None else f"{done.lag:,}",
            "\n".join(written) or "-",
            done.committed_at[11:19],
            f"{done.seconds:.1f} s",
        )
