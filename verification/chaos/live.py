"""The live view of a run: a table that renews itself on a terminal, a line now and then elsewhere."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from verification.chaos.run import Run
from verification.history import Outcome

_LINE_EVERY_S: Final = 10.0
_METRICS: Final = {
    "kproxy_batches_in_flight": "in flight",
    "kproxy_batches_in_doubt": "in doubt",
    "kproxy_records_matched": "matched",
    "kproxy_records_stripped": "stripped",
    "kproxy_resends": "resends",
    "kproxy_epoch_bumps": "epoch bumps",
    "kproxy_fences": "fences",
    "kproxy_recoveries": "recoveries",
}
_ERRORS_SHOWN: Final = 6


class LiveView:
    """Shows a run; ``watch`` is to be called twice a second or so. A context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._began = time.monotonic()
        self._printed = 0.0
        self._before = (self._began, 0)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def watch(self, run: Run) -> None:
        """Show what a run is at."""
        facts = self._facts(run)
        if self._live is not None:
            table = Table("", "", title=f"seed {run.plan.seed}", box=None, show_header=False)
            for name, text in facts.items():
                table.add_row(name, text)
            self._live.update(table, refresh=True)
        elif time.monotonic() - self._printed > _LINE_EVERY_S:
            self._printed = time.monotonic()
            self._console.print(" | ".join(f"{name}: {text}" for name, text in facts.items() if text), soft_wrap=True)

    def _facts(self, run: Run) -> dict[str, str]:
        records = run.recorder.records
        left = max(0.0, run.plan.seconds - (time.monotonic() - run.nemesis.began)) if run.phase == "faults" else 0.0
        errors = ", ".join(f"{name} {count}" for name, count in run.recorder.errors.most_common(_ERRORS_SHOWN))
        return {
            "phase": f"{run.phase}, {left:.0f} s left" if left else run.phase,
            "acknowledged": f"{records[Outcome.OK]:,} ({self._rate(records[Outcome.OK]):,.0f}/s)",
            "unknown": f"{records[Outcome.INFO]:,}",
            "polled": f"{run.recorder.polled:,}",
            "faults": "; ".join(map(str, run.nemesis.current)) or "none",
            "kproxy": ", ".join(
                f"{name} {run.metrics[key]:,.0f}" for key, name in _METRICS.items() if key in run.metrics
            ),
            "met": errors,
        }

    def _rate(self, count: int) -> float:
        """Records a second since the last call but for the first few moments, when the figure would jump."""
        now = time.monotonic()
        then, before = self._before
        if now - then > 1.0:
            self._before = (now, count)
        return (count - before) / max(now - then, 0.2)
