"""Runs of producers that share a transactional id, until their history has what a test looks for."""

from collections.abc import Callable

import trio

from tests.support.patience import PATIENCE_S
from verification.chaos.recorder import Recorder
from verification.chaos.twins import Twin
from verification.history import AnomalyKind, Kind, Operation, Outcome, check, read_history


def recorded(recorder: Recorder) -> list[Operation]:
    recorder.flush()
    return list(read_history(recorder.path))


async def run(recorder: Recorder, twins: list[Twin], enough: Callable[[list[Operation]], bool]) -> None:
    """Let the twins write until their history has the awaited event."""
    async with trio.open_nursery() as nursery:
        for twin in twins:
            nursery.start_soon(twin.run)
        with trio.fail_after(PATIENCE_S):
            while not enough(recorded(recorder)):  # noqa: ASYNC110 - a file is read
                await trio.sleep(0.05)
        for twin in twins:
            twin.stop()


def kinds(history: list[Operation]) -> set[AnomalyKind]:
    return {anomaly.kind for anomaly in check(history)}


def count(history: list[Operation], kind: Kind, outcome: Outcome, process: str = "") -> int:
    return sum((one.kind, one.outcome) == (kind, outcome) and process in one.process for one in history)
