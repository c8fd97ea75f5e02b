"""Anomalies of what was polled: records left out, given again, or out of order."""

from collections.abc import Iterator, Mapping, Sequence

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.logs import PartitionLog, TopicPartition
from verification.history.operations import Kind, Operation, Poll

_Seen = tuple[int, Operation]
"""The offset that a process polled last, and in which operation."""


def check_polls(history: Sequence[Operation], logs: Mapping[TopicPartition, PartitionLog]) -> Iterator[Anomaly]:
    """Anomalies 9 and 10 of polls: consecutive records of a partition in one process have neighbouring ranks.

    Between two polls that does not hold once the process has subscribed, nor where it has assigned partitions again.
    """
    last: dict[str, dict[TopicPartition, _Seen]] = {}
    subscribed: set[str] = set()
    for operation in sorted(history, key=lambda operation: operation.invoke):
        if operation.kind in (Kind.ASSIGN, Kind.SUBSCRIBE):
            last.pop(operation.process, None)
            (subscribed.add if operation.kind is Kind.SUBSCRIBE else subscribed.discard)(operation.process)
        for poll in operation.polls:
            place = poll.topic, poll.partition
            seen = last.setdefault(operation.process, {})
            before = seen.get(place)
            if before is not None and before[1] is not operation and operation.process in subscribed:
                before = None
            yield from _check_poll(poll, operation, logs[place], before)
            if poll.records:
                seen[place] = poll.records[-1][0], operation


def _check_poll(poll: Poll, operation: Operation, log: PartitionLog, before: _Seen | None) -> Iterator[Anomaly]:
    for offset, value in poll.records:
        if before is not None:
            gap = log.rank[offset] - log.rank[before[0]]
            if gap != 1:
                inside = before[1] is operation
                skip = (AnomalyKind.POLL_SKIP, AnomalyKind.INT_POLL_SKIP)[inside]
                back = (AnomalyKind.NONMONOTONIC_POLL, AnomalyKind.INT_NONMONOTONIC_POLL)[inside]
                found = f"{operation.process} polled {offset} behind {before[0]}"
                found += f", {gap - 1} records left out" if gap > 1 else ""
                operations = (operation,) if inside else (before[1], operation)
                yield Anomaly(
                    skip if gap > 1 else back,
                    poll.topic,
                    poll.partition,
                    found,
                    value,
                    (before[0], offset),
                    operations,
                )
        before = offset, operation
