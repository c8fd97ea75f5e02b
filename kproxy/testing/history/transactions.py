"""Anomalies of transactions: torn ones, records read too early, last stable offsets that are none."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kproxy.testing.history.anomaly import Anomaly, AnomalyKind
from kproxy.testing.history.logs import PartitionLog, Place
from kproxy.testing.history.operations import Kind, Operation, Outcome

_Told = list[tuple[int, int, Operation]]
"""By time: when a last stable offset was told, the highest one up to then, and in which operation."""


def check_whole(history: Sequence[Operation], logs: Mapping[Place, PartitionLog]) -> Iterator[Anomaly]:
    """Anomalies 6 and 8; the latter where everything was read at the end.

    A transaction that was refused is not torn but, if any of it shows, an aborted read (5).
    """
    complete = any(operation.final for operation in history)
    first_read = _first_read(history)
    for operation in history:
        if operation.kind is not Kind.TXN:
            continue
        missing = [send for send in operation.sends if send.value not in logs[send.topic, send.partition].read]
        if complete and operation.outcome is not Outcome.FAIL and 0 < len(missing) < len(operation.sends):
            topic, partition, offset, value = missing[0]
            found = (
                f"{len(missing)} of {len(operation.sends)} records of a transaction of {operation.process} are missing"
            )
            offsets = () if offset is None else (offset,)
            yield Anomaly(AnomalyKind.TORN, topic, partition, found, value, offsets, (operation,))
        for topic, partition, _, value in operation.sends if operation.asked is not None else ():
            early = first_read.get((topic, partition, value))
            if early is not None and early[0] < (operation.asked or 0):
                found = f"{value!r} was read by {early[1].process} before its commit was asked for"
                witnesses = (operation, early[1])
                yield Anomaly(AnomalyKind.PRECOMMITTED_READ, topic, partition, found, value, (), witnesses)


def _first_read(history: Sequence[Operation]) -> dict[tuple[str, int, str], tuple[int, Operation]]:
    """When each record had been read by somebody, and by which poll."""
    found: dict[tuple[str, int, str], tuple[int, Operation]] = {}
    for operation in history:
        if operation.complete is None:
            continue
        for topic, partition, records in operation.polls:
            for _, value in records:
                before = found.get((topic, partition, value))
                if before is None or operation.complete < before[0]:
                    found[topic, partition, value] = operation.complete, operation
    return found


def check_stable_offsets(history: Sequence[Operation], logs: Mapping[Place, PartitionLog]) -> Iterator[Anomaly]:
    """Anomaly 15: for one process they never fall; what is not decided, in the history's eyes, does not lie below."""
    told: dict[Place, _Told] = defaultdict(list)
    highest: dict[tuple[str, Place], tuple[int, Operation]] = {}
    asked = [operation for operation in history if operation.kind is Kind.STABLE and operation.complete is not None]
    for operation in sorted(asked, key=lambda operation: operation.complete or 0):
        for topic, partition, offset in operation.commits:
            place = topic, partition
            rows = told[place]
            rows.append((operation.complete or 0, max(offset, rows[-1][1] if rows else 0), operation))
            before, witness = highest.get((operation.process, place), (0, operation))
            if offset < before:
                found = f"{operation.process} was told {offset} behind {before}"
                witnesses = (witness, operation)
                yield Anomaly(AnomalyKind.UNSTABLE, *place, found, None, (before, offset), witnesses)
            else:
                highest[operation.process, place] = offset, operation
    for operation in history:
        if operation.kind is Kind.TXN and operation.asked is not None:
            yield from _undecided(operation, operation.asked, logs, told)


def _undecided(
    operation: Operation, asked: int, logs: Mapping[Place, PartitionLog], told: Mapping[Place, _Told]
) -> Iterator[Anomaly]:
    """What a transaction has committed was undecided until its commit was asked for."""
    for topic, partition, _, value in operation.sends:
        rows = told.get((topic, partition), [])
        at = bisect_left(rows, asked, key=lambda row: row[0])
        offsets = logs[topic, partition].offsets.get(value)
        if at and offsets and offsets[0] < rows[at - 1][1]:
            found = f"{value!r} at {offsets[0]} was not decided when {rows[at - 1][1]} was told"
            witnesses = (operation, rows[at - 1][2])
            yield Anomaly(AnomalyKind.UNSTABLE, topic, partition, found, value, (offsets[0],), witnesses)
