"""Anomalies of applications that make one output record of each input record, and commit their positions with it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.logs import PartitionLog, TopicPartition
from verification.history.operations import Kind, Operation, Outcome, Source

_WITNESSES = 3
_Outputs = dict[Source, set[tuple[str, int, str]]]
"""By input: where its outputs were sent, and their values."""


def check_derived(history: Sequence[Operation], logs: Mapping[TopicPartition, PartitionLog]) -> Iterator[Anomaly]:
    """Anomaly 11: each input below a group's committed offset has exactly one visible output, each other one has none.

    Checked for transactions with ``group`` and ``sources``. The group began at the start of its partitions. Its
    committed offset is what was read at the end (``Kind.GROUP``, ``final``); if nothing was, it lies between the
    highest that was acknowledged and the highest that may have been written.
    """
    outputs: dict[str, _Outputs] = defaultdict(lambda: defaultdict(set))
    makers: dict[tuple[str, Source], list[Operation]] = defaultdict(list)
    for operation in history:
        if operation.group:
            for source, (topic, partition, _, value) in zip(operation.sources, operation.sends, strict=False):
                outputs[operation.group][source].add((topic, partition, value))
                makers[operation.group, source].append(operation)
    for group, derived in outputs.items():
        least, most = _positions(history, group)
        for source in _inputs(derived, logs, least):
            place = source.topic, source.partition
            count = sum(len(logs[topic, part].read.get(value, ())) for topic, part, value in derived.get(source, ()))
            below = source.offset < least.get(place, 0)
            above = source.offset >= most.get(place, 0)
            if (below and count != 1) or (above and count) or count > 1:
                where = "below" if below else "not below"
                detail = f"input {source.offset}, {where} the offset of {group}, has {count} visible outputs"
                witnesses = tuple(makers[group, source][:_WITNESSES])
                yield Anomaly(AnomalyKind.EOS_BREAK, *place, detail, None, (source.offset,), witnesses)


def _positions(
    history: Sequence[Operation], group: str
) -> tuple[dict[TopicPartition, float], dict[TopicPartition, float]]:
    """Return the least and the highest committed offset that the group may have, by input partition."""
    final: dict[TopicPartition, float] = {}
    least: dict[TopicPartition, float] = {}
    most: dict[TopicPartition, float] = {}
    for operation in sorted(history, key=lambda operation: operation.complete or operation.invoke):
        if operation.group != group or operation.outcome is Outcome.FAIL:
            continue
        for topic, partition, offset in operation.commits:
            place = topic, partition
            if operation.kind is Kind.GROUP and operation.final:
                final[place] = offset
            most[place] = max(offset, most.get(place, -inf))
            if operation.outcome is Outcome.OK:
                least[place] = max(offset, least.get(place, -inf))
    return {**least, **final}, {**most, **final}


def _inputs(
    derived: _Outputs, logs: Mapping[TopicPartition, PartitionLog], positions: Mapping[TopicPartition, float]
) -> list[Source]:
    """Return all inputs that are known: those in the log, and those from which something was made."""
    known = {Source(*place, offset) for place in positions for offset in (logs[place].values if place in logs else ())}
    return sorted(known | derived.keys())
