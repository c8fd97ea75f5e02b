"""Anomalies of last stable offsets."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Final

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.logs import PartitionLog, TopicPartition
from verification.history.operations import Kind, Operation, Outcome

STUCK_NS: Final = 70_000_000_000
"""Kafka's default ``transaction.timeout.ms`` (60 s) and 10 s more: for so long an offset may wait for a transaction."""
_Told = list[tuple[int, int, Operation]]
"""By time: when a last stable offset was reported, the highest one up to then, and in which operation."""


def check_stable_offsets(
    history: Sequence[Operation], logs: Mapping[TopicPartition, PartitionLog]
) -> Iterator[Anomaly]:
    """Anomaly 15: for one process they never fall; what is not decided, in the history's eyes, does not lie below."""
    told: dict[TopicPartition, _Told] = defaultdict(list)
    highest: dict[tuple[str, TopicPartition], tuple[int, Operation]] = {}
    asked = [operation for operation in history if operation.kind is Kind.STABLE and operation.complete is not None]
    for operation in sorted(asked, key=lambda operation: operation.complete or 0):
        for topic, partition, offset in operation.commits:
            place = topic, partition
            rows = told[place]
            rows.append((operation.complete or 0, max(offset, rows[-1][1] if rows else 0), operation))
            before, witness = highest.get((operation.process, place), (0, operation))
            if offset < before:
                found = f"{operation.process} received {offset} after {before}"
                witnesses = (witness, operation)
                yield Anomaly(AnomalyKind.UNSTABLE, *place, found, None, (before, offset), witnesses)
            else:
                highest[operation.process, place] = offset, operation
    for operation in history:
        if operation.kind is Kind.TXN and operation.asked is not None:
            yield from _undecided(operation, operation.asked, logs, told)


def _undecided(
    operation: Operation, asked: int, logs: Mapping[TopicPartition, PartitionLog], told: Mapping[TopicPartition, _Told]
) -> Iterator[Anomaly]:
    """What a transaction has committed was undecided until its commit was asked for."""
    for topic, partition, _, value in operation.sends:
        rows = told.get((topic, partition), [])
        at = bisect_left(rows, asked, key=lambda row: row[0])
        offsets = logs[topic, partition].offsets.get(value)
        if at and offsets and offsets[0] < rows[at - 1][1]:
            found = f"{value!r} at {offsets[0]} was not decided when {rows[at - 1][1]} was reported"
            witnesses = (operation, rows[at - 1][2])
            yield Anomaly(AnomalyKind.UNSTABLE, topic, partition, found, value, (offsets[0],), witnesses)


def check_stuck(history: Sequence[Operation], stuck_ns: int = STUCK_NS) -> Iterator[Anomaly]:
    """Anomaly 15: a last stable offset stays below an acknowledged record though no transaction was open for long.

    A transaction counts as open from its begin to its end and, if it was not acknowledged as committed, for
    ``stuck_ns`` more: a client that gives up may leave it open until it times out.
    """
    written = _by_time(history, stuck_ns)
    begun, ended = _open(history, stuck_ns)
    for operation in history:
        if operation.kind is not Kind.STABLE or operation.complete is None:
            continue
        at = operation.complete
        for topic, partition, offset in operation.commits:
            place = topic, partition
            times, highest = written.get(place, ([], []))
            count = bisect_left(times, at - stuck_ns)
            first = bisect_left(begun.get(place, ()), at)
            idle = not first or ended[place][first - 1] < at - stuck_ns
            if count and highest[count - 1] >= offset and idle:
                known = highest[count - 1]
                found = f"{operation.process} received {offset}, {stuck_ns / 1e9:.0f} s after {known} was acknowledged"
                yield Anomaly(AnomalyKind.UNSTABLE, *place, found, None, (offset, known), (operation,))


def _by_time(history: Sequence[Operation], stuck_ns: int) -> dict[TopicPartition, tuple[list[int], list[int]]]:
    """Return when records were acknowledged, by partition and time, and the highest offset up to then."""
    rows: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for operation in history:
        if operation.outcome is Outcome.OK and operation.complete is not None:
            for topic, partition, offset, _ in operation.sends:
                if offset is not None:
                    rows[topic, partition].append((operation.complete, offset))
    found = {}
    for place, times in rows.items():
        times.sort()
        found[place] = [at for at, _ in times], list(accumulate((offset for _, offset in times), max))
    return found


def _open(
    history: Sequence[Operation], stuck_ns: int
) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, list[float]]]:
    """Return when transactions began, by partition and time, and the latest end of those begun up to then."""
    rows: dict[TopicPartition, list[tuple[int, float]]] = defaultdict(list)
    for operation in history:
        if operation.kind is Kind.TXN:
            end = inf if operation.complete is None else operation.complete
            end += stuck_ns if operation.outcome is not Outcome.OK else 0
            for place in {send[:2] for send in operation.sends}:
                rows[place].append((operation.invoke, end))
    for spans in rows.values():
        spans.sort()
    begun = {place: [begin for begin, _ in spans] for place, spans in rows.items()}
    return begun, {place: list(accumulate((end for _, end in spans), max)) for place, spans in rows.items()}
