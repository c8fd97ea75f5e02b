"""Histories made by hand: a clean one, and the pieces to spoil it with."""

from collections.abc import Iterable

from verification.history import Kind, Operation, Outcome, Poll, Send

TOPIC = "t"


def send(
    value: str,
    offset: int | None,
    *,
    at: int = 0,
    process: str = "p",
    outcome: Outcome = Outcome.OK,
    kind: Kind = Kind.SEND,
) -> Operation:
    return Operation(process, kind, outcome, at, at + 1, sends=(Send(TOPIC, 0, offset, value),))


def poll(
    *records: tuple[int, str], at: int = 1000, process: str = "reader", final: bool = False, ok: bool = True
) -> Operation:
    outcome = Outcome.OK if ok else Outcome.INFO
    return Operation(process, Kind.POLL, outcome, at, at + 1, polls=(Poll(TOPIC, 0, records),), final=final)


def written(values: Iterable[str]) -> list[Operation]:
    """Each value acknowledged at its place, one after another, by one process."""
    return [send(value, offset, at=10 * offset) for offset, value in enumerate(values)]


def log(*values: str) -> Operation:
    """The reading at the end: these values at offsets 0, 1, ..."""
    return poll(*enumerate(values), final=True, at=10_000)
