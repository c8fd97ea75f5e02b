import io
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from verification.chaos.live import LiveView
from verification.chaos.run import Run
from verification.chaos.schedule import Step
from verification.history import Outcome


def run(phase: str = "faults") -> Run:
    fields: dict[str, Any] = {
        "phase": phase,
        "plan": SimpleNamespace(seconds=60.0, seed=7),
        "metrics": {"kproxy_batches_in_doubt": 12.0, "kproxy_records_matched": 34.0, "other": 1.0},
        "recorder": SimpleNamespace(
            records=Counter({Outcome.OK: 1234, Outcome.INFO: 5}), polled=99, errors=Counter({"connection reset": 3})
        ),
        "nemesis": SimpleNamespace(current=[Step(1.0, "broker", "kill", 2, 3.0, 0.5)], began=time.monotonic()),
    }
    return cast("Run", SimpleNamespace(**fields))


def test_without_a_terminal_a_line_tells_everything_now_and_then() -> None:
    output = io.StringIO()
    with LiveView(Console(file=output, width=400)) as view:
        view.watch(run())
        view.watch(run())
    [line] = output.getvalue().splitlines()
    for part in ("s left", "1,234", "unknown: 5", "kill broker 2 for 3.0 s", "in doubt 12", "matched 34", "reset 3"):
        assert part in line


def test_on_a_terminal_it_is_a_table_that_disappears_at_the_end() -> None:
    output = io.StringIO()
    with LiveView(Console(file=output, width=200, force_terminal=True)) as view:
        view.watch(run())
        shown = output.getvalue()
    assert "seed 7" in shown
    assert "kill broker 2" in shown
