"""Anomalies of what was sent: lost, doubled, merged, made up, out of order."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.logs import PartitionLog, TopicPartition, must_hold
from verification.history.operations import Operation, Outcome, Send

_WITNESSES = 3
_Sent = tuple[Operation, Send]


def check_values(logs: dict[TopicPartition, PartitionLog]) -> Iterator[Anomaly]:
    """Anomalies 1, 3, 4, 5 and 17, value by value; 17 where a value was sent more than once, the others elsewhere."""
    for place, log in logs.items():
        # The last position of which the reading must have known: a record before it that was not read is lost.
        reached = max((log.rank[log.offsets[value][0]] for value in log.read), default=-1)
        for value in log.writers.keys() | log.offsets.keys():
            writers = log.writers.get(value, [])
            if not writers:
                found = f"{value!r} was read at {_list(log.offsets[value])}, but never sent"
                yield Anomaly(AnomalyKind.UNSENT, *place, found, value, tuple(log.offsets[value]))
            elif all(writer.outcome is Outcome.FAIL for writer in writers):
                yield from _check_refused(place, log, value, writers)
            elif len(writers) == 1:
                yield from _check_unique(place, log, value, writers[0], must_hold(writers[0], logs), reached)
            else:
                yield from _check_repeated(place, log, value, writers)


def _check_refused(place: TopicPartition, log: PartitionLog, value: str, writers: list[Operation]) -> Iterator[Anomaly]:
    if offsets := log.offsets.get(value):
        found = f"{value!r} was refused ({writers[0].error or 'fail'}) and is at {_list(offsets)}"
        yield Anomaly(AnomalyKind.ABORTED_READ, *place, found, value, tuple(offsets), tuple(writers[:_WITNESSES]))


def _check_unique(
    place: TopicPartition, log: PartitionLog, value: str, writer: Operation, must: bool, reached: int
) -> Iterator[Anomaly]:
    offsets = log.offsets.get(value, [])

    def anomaly(kind: AnomalyKind, detail: str) -> Anomaly:
        return Anomaly(kind, *place, detail, value, tuple(offsets), (writer,))

    if len(offsets) > 1:
        yield anomaly(
            AnomalyKind.DUPLICATE, f"{value!r} was sent once ({writer.outcome.value}) and is at {_list(offsets)}"
        )
    if not must or value in log.read:
        return
    if offsets and log.rank[offsets[-1]] <= reached:
        yield anomaly(AnomalyKind.LOST_WRITE, f"{value!r} was acknowledged at {_list(offsets)} and is not there")
    elif writer.outcome is Outcome.OK:
        yield anomaly(AnomalyKind.UNSEEN, f"{value!r} was acknowledged and is nowhere")


def _check_repeated(
    place: TopicPartition, log: PartitionLog, value: str, writers: list[Operation]
) -> Iterator[Anomaly]:
    outcomes = Counter(writer.outcome for writer in writers)
    least, most = outcomes[Outcome.OK], outcomes[Outcome.OK] + outcomes[Outcome.INFO]
    count = len(log.read.get(value, ()))
    if not least <= count <= most:
        bounds = f"{least}" if least == most else f"{least} to {most}"
        found = f"{value!r} is in the log {count} times, {bounds} expected"
        yield Anomaly(AnomalyKind.FALSE_DEDUP, *place, found, value, (), tuple(writers[:_WITNESSES]))


def check_offsets(logs: Mapping[TopicPartition, PartitionLog]) -> Iterator[Anomaly]:
    """Anomaly 2: an offset with several values, from polls and acknowledgements together."""
    for place, log in logs.items():
        for offset, values in sorted(log.conflicts.items()):
            found = f"offset {offset} has {' and '.join(map(repr, values))}"
            operations = tuple(writer for value in values for writer in log.writers.get(value, ())[:1])
            yield Anomaly(AnomalyKind.INCONSISTENT_OFFSET, *place, found, values[0], (offset,), operations[:_WITNESSES])


def check_acknowledgements(history: Sequence[Operation]) -> Iterator[Anomaly]:
    """Anomaly 18: one offset given to two acknowledged sends."""
    owners: dict[tuple[str, int, int], _Sent] = {}
    for operation in history:
        if operation.outcome is not Outcome.OK:
            continue
        for send in operation.sends:
            if send.offset is None:
                continue
            own = operation, send
            first, _ = owner = owners.setdefault((send.topic, send.partition, send.offset), own)
            if owner is not own:
                found = f"offset {send.offset} was acknowledged to {first.process} and to {operation.process}"
                where = send.value, (send.offset,), (first, operation)
                yield Anomaly(AnomalyKind.DOUBLE_ACK, send.topic, send.partition, found, *where)


def check_order(history: Sequence[Operation], logs: Mapping[TopicPartition, PartitionLog]) -> Iterator[Anomaly]:
    """Anomaly 10 of sends: acknowledged ones of a process are in the log in the order in which it sent them."""
    sent: dict[tuple[str, str, int], list[_Sent]] = defaultdict(list)
    for operation in sorted(history, key=lambda operation: operation.invoke):
        if operation.outcome is Outcome.OK:
            for send in operation.sends:
                sent[operation.process, send.topic, send.partition].append((operation, send))
    for (_, topic, partition), sends in sent.items():
        yield from _check_lane((topic, partition), logs[topic, partition], sends)


def _check_lane(place: TopicPartition, log: PartitionLog, sends: Sequence[_Sent]) -> Iterator[Anomaly]:
    before: tuple[int, _Sent] | None = None
    for operation, send in sends:
        offset = _position(log, send)
        if offset is None:
            continue
        if before is not None and offset < before[0]:
            inside = operation is before[1][0]
            kind = AnomalyKind.INT_NONMONOTONIC_SEND if inside else AnomalyKind.NONMONOTONIC_SEND
            earlier = before[1][1].value
            found = f"{operation.process} sent {earlier!r}, now at {before[0]}, before {send.value!r}, at {offset}"
            operations = (operation,) if inside else (before[1][0], operation)
            yield Anomaly(kind, *place, found, send.value, (before[0], offset), operations)
        before = offset, (operation, send)


def _position(log: PartitionLog, send: Send) -> int | None:
    """Where a send stands: where its value was read, if it was sent once; else where the acknowledgement says."""
    if len(log.writers[send.value]) == 1 and (read := log.read.get(send.value)):
        return min(read)
    return send.offset


def _list(offsets: Sequence[int]) -> str:
    return ", ".join(map(str, offsets))
