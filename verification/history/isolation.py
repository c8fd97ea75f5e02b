"""The anomaly of readers that filter: what one isolation level leaves out of what the other one shows."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.logs import PartitionLog, TopicPartition
from verification.history.operations import Kind, Operation, Outcome

_Records = list[tuple[int, str]]
_Logs = Mapping[TopicPartition, PartitionLog]


def check_isolation(history: Sequence[Operation], logs: _Logs) -> Iterator[Anomaly]:
    """Anomaly 16: what ``read_committed`` shows is what ``read_uncommitted`` shows without aborted records.

    Compares offsets, values and order where a partition was read at the end with both. A transaction without a known
    outcome is committed if any of its records is visible. Equal records of which some are committed and others are not
    are left out. With ``read_uncommitted``, too, nothing is read that nobody sent (0).

    :param logs: without what was read with ``read_uncommitted``.
    """
    for operation in history:
        if operation.uncommitted:
            yield from _check_senders(operation, logs)
    readings: dict[tuple[TopicPartition, bool], _Records] = defaultdict(list)
    for operation in sorted(history, key=lambda operation: operation.invoke):
        for topic, partition, records in operation.polls if operation.final else ():
            readings[(topic, partition), operation.uncommitted].extend(records)
    for place in sorted(place for place, uncommitted in readings if uncommitted):
        if (place, False) in readings:
            yield from _compare(place, readings[place, False], readings[place, True], logs)


def _check_senders(operation: Operation, logs: _Logs) -> Iterator[Anomaly]:
    """Anomaly 0 of ``read_uncommitted``: a record that nobody sent, such as a control record handed over as data."""
    for topic, partition, records in operation.polls:
        writers = logs[topic, partition].writers if (topic, partition) in logs else {}
        for offset, value in records:
            if value not in writers:
                detail = f"{operation.process} read {value!r} at {offset}, which nobody sent"
                yield Anomaly(AnomalyKind.UNSENT, topic, partition, detail, value, (offset,), (operation,))


def _compare(place: TopicPartition, committed: _Records, everything: _Records, logs: _Logs) -> Iterator[Anomaly]:
    decided = {value: _is_committed(value, place, logs) for _, value in (*committed, *everything)}
    shown = [record for record in committed if decided[record[1]] is not None]
    expected = [record for record in everything if decided[record[1]]]
    missing, more = set(expected) - set(shown), set(shown) - set(expected)
    for records, what in ((missing, "is missing with read_committed"), (more, "is read with read_committed alone")):
        if records:
            offset, value = min(records)
            detail = f"{value!r} at {offset} {what}" + (f", and {len(records) - 1} more" if len(records) > 1 else "")
            yield Anomaly(AnomalyKind.FILTER_MISMATCH, *place, detail, value, (offset,))
    if not missing and not more and shown != expected:
        (offset, value), _ = next(pair for pair in zip(shown, expected, strict=False) if pair[0] != pair[1])
        detail = f"{value!r} at {offset} comes in another order with read_committed"
        yield Anomaly(AnomalyKind.FILTER_MISMATCH, *place, detail, value, (offset,))


def _is_committed(value: str, place: TopicPartition, logs: _Logs) -> bool | None:
    """Whether a value is to be shown to all readers; None if its writers differ."""
    writers = logs[place].writers.get(value, []) if place in logs else []
    states = {_is_shown(writer, logs) for writer in writers} or {True}
    return states.pop() if len(states) == 1 else None


def _is_shown(writer: Operation, logs: _Logs) -> bool:
    if writer.kind is not Kind.TXN:
        return True
    if writer.outcome is Outcome.INFO:
        return any(send.value in logs[send.topic, send.partition].read for send in writer.sends)
    return writer.outcome is Outcome.OK
