"""Anomalies of transactions: torn ones, and records that were read too early."""

from collections.abc import Iterator, Mapping, Sequence

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.logs import PartitionLog, TopicPartition
from verification.history.operations import Kind, Operation, Outcome
from verification.history.reads import first_reads


def check_whole(history: Sequence[Operation], logs: Mapping[TopicPartition, PartitionLog]) -> Iterator[Anomaly]:
    """Anomalies 6 and 8; the latter where everything was read at the end.

    A transaction that was refused is not torn but, if any of it shows, an aborted read (5).
    """
    complete = any(operation.final for operation in history)
    first_read = first_reads(history)
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
