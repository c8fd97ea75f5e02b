"""One case's run, and its row of the table."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from verification.chaos.kproxy_process import KproxyFailed
from verification.chaos.released import ClientFailed
from verification.network.outcome import Outcome
from verification.network.site import Site

__all__ = ["COLUMNS", "Row", "run_case"]

COLUMNS: Final = ("acknowledged", "in the log", "lost", "doubled", "late", "seconds")


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one case; ``outcome`` is None if it did not reach its end, and ``error`` says why."""

    name: str
    seconds: float
    outcome: Outcome | None
    error: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        return (self.error,) if self.outcome is None else self.outcome.problems

    @property
    def verdict(self) -> str:
        return "; ".join(self.problems or ("good",))

    def cells(self) -> list[str]:
        """Return the cells of :data:`COLUMNS`."""
        counted = ["-"] * 5
        if self.outcome is not None:
            found = self.outcome
            counted = [str(n) for n in (found.acknowledged, found.logged, found.lost, found.doubled, found.late)]
        return [*counted, f"{self.seconds:.1f}"]

    def fields(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        cells: dict[str, Any] = dict(zip(COLUMNS, self.cells(), strict=True))
        return {"case": self.name, **cells, "verdict": self.verdict}


def run_case(name: str, case: Callable[[Site], Outcome], site: Site) -> Row:
    """Run a case; what it raises, if a process failed or something took too long, becomes its verdict."""
    begin = time.monotonic()
    outcome, error = None, ""
    try:
        outcome = case(site)
    except (KproxyFailed, ClientFailed, TimeoutError, RuntimeError, OSError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    return Row(name, time.monotonic() - begin, outcome, error)
