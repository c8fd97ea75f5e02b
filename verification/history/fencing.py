"""Anomalies of identities: what a producer does after it was fenced, and an EndTxn that arrives too late."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.logs import PartitionLog, TopicPartition
from verification.history.operations import Kind, Operation, Outcome, Producer, Send
from verification.history.reads import FirstReads, first_reads

_STATE_CHANGED = "INVALID_TXN_STATE"
"""The error for a transaction that has ended without its producer's EndTxn."""
_Logs = Mapping[TopicPartition, PartitionLog]


@dataclass(slots=True)
class _Fences:
    """The identities that one transactional id has received, by time."""

    inits: dict[int, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    """By producer id, in the order in which the responses arrived."""
    highest: dict[int, list[Operation]] = field(default_factory=dict)
    """By producer id: of the responses up to each of ``inits``, the one with the highest epoch."""
    next_id: dict[int, Operation] = field(default_factory=dict)
    """By producer id: the first response with another one, for a request made after the former had been received."""

    def finish(self, inits: Sequence[Operation]) -> None:
        """Take all InitProducerIds of the id, in the order of their responses."""
        for init in inits:
            producer_id, epoch = _identity(init)
            rows = self.highest.setdefault(producer_id, [])
            rows.append(rows[-1] if rows and _identity(rows[-1]).epoch >= epoch else init)
            self.inits[producer_id].append(init)
        for producer_id, own in self.inits.items():
            known = own[0].complete or 0
            others = (init for init in inits if _identity(init).producer_id != producer_id and init.invoke > known)
            newer = next(others, None)
            if newer is not None:
                self.next_id[producer_id] = newer

    def fence(self, producer: Producer, at: int) -> Operation | None:
        """Return an InitProducerId that fenced a producer and whose response had arrived before ``at``."""
        newer = self.next_id.get(producer.producer_id)
        if newer is not None and (newer.complete or 0) < at:
            return newer
        count = bisect_left(self.inits.get(producer.producer_id, ()), at, key=lambda init: init.complete or 0)
        if not count:
            return None
        init = self.highest[producer.producer_id][count - 1]
        return init if _identity(init).epoch > producer.epoch else None


def check_fenced(history: Sequence[Operation], logs: _Logs) -> Iterator[Anomaly]:
    """Anomalies 12 and 13: a producer counts as fenced once the response to a newer InitProducerId has arrived.

    Only operations that name ``transactional_id`` and ``producer`` are checked. A transaction begun before the fence
    may have written before it; so 12 asks when the transaction began, and 13 when its commit was asked for.
    """
    fences = _fences(history)
    for operation in history:
        known = fences.get(operation.transactional_id)
        if known is None or operation.producer is None:
            continue
        if operation.kind is Kind.END and operation.outcome is Outcome.OK:
            fence = known.fence(operation.producer, operation.invoke)
            if fence is not None:
                yield _anomaly(AnomalyKind.FENCED_SUCCESS, "an EndTxn succeeded for", operation, fence)
        elif operation.sends:
            yield from _check_sends(operation, operation.producer, known, logs)


def _check_sends(operation: Operation, producer: Producer, fences: _Fences, logs: _Logs) -> Iterator[Anomaly]:
    seen = _visible(operation, logs)
    fence = fences.fence(producer, operation.invoke)
    if fence is not None and seen:
        yield _anomaly(AnomalyKind.ZOMBIE, f"{seen[0].value!r} is visible of", operation, fence, seen[0])
    late = None if operation.asked is None else fences.fence(producer, operation.asked)
    if late is not None and (operation.outcome is Outcome.OK or seen):
        yield _anomaly(AnomalyKind.FENCED_SUCCESS, "a commit succeeded for", operation, late, operation.sends[0])


def _anomaly(kind: AnomalyKind, what: str, operation: Operation, fence: Operation, send: Send | None = None) -> Anomaly:
    found = f"{what} {_name(operation)}, which {_name(fence)} of {fence.process} had fenced"
    if send is None:
        return Anomaly(kind, "", -1, found, operations=(fence, operation))
    offsets = () if send.offset is None else (send.offset,)
    return Anomaly(kind, send.topic, send.partition, found, send.value, offsets, (fence, operation))


def _fences(history: Sequence[Operation]) -> dict[str, _Fences]:
    inits: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        answered = operation.outcome is Outcome.OK and operation.complete is not None and operation.producer is not None
        if operation.kind is Kind.INIT and answered:
            inits[operation.transactional_id].append(operation)
    found = {}
    for name, own in inits.items():
        found[name] = _Fences()
        found[name].finish(sorted(own, key=lambda init: init.complete or 0))
    return found


def check_late_ends(history: Sequence[Operation], logs: _Logs) -> Iterator[Anomaly]:
    """Anomaly 14: an EndTxn sent before a transaction began and delivered while it was open; and that one was changed.

    Changed: torn, visible though aborted, invisible though committed, visible before its commit was asked for, or
    refused because it was no longer open though no InitProducerId may have aborted it. Only EndTxns with a time of
    delivery are checked.
    """
    transactions: dict[str, list[Operation]] = defaultdict(list)
    for operation in sorted(history, key=lambda operation: operation.invoke):
        if operation.kind is Kind.TXN and operation.transactional_id:
            transactions[operation.transactional_id].append(operation)
    inits: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        if operation.kind is Kind.INIT:
            inits[operation.transactional_id].append(operation)
    complete = any(operation.final for operation in history)
    read = first_reads(history)
    for end in history:
        own = transactions.get(end.transactional_id, [])
        if end.kind is not Kind.END or end.delivered is None:
            continue
        at = bisect_left(own, end.delivered, key=lambda operation: operation.invoke)
        if not at or end.invoke >= own[at - 1].invoke:
            continue
        transaction = own[at - 1]
        ended = transaction.complete if transaction.asked is None else transaction.asked
        if ended is not None and end.delivered > ended:
            continue
        change = _change(transaction, logs, complete, read) or _closed(transaction, inits.get(end.transactional_id, []))
        if change:
            found = (
                f"an EndTxn of {_name(end)} arrived in the next transaction of {transaction.process}, which {change}"
            )
            place = transaction.sends[0][:2] if transaction.sends else ("", -1)
            yield Anomaly(AnomalyKind.DELAYED_END, *place, found, operations=(end, transaction))


def _change(transaction: Operation, logs: _Logs, complete: bool, read: FirstReads) -> str:
    seen = _visible(transaction, logs)
    asked = transaction.asked
    if asked is not None and any(_read_before(send, asked, read) for send in transaction.sends):
        return "was read before its commit was asked for"
    if transaction.outcome is Outcome.FAIL:
        return "was aborted and is visible" if seen else ""
    if complete and len(seen) < len(transaction.sends) and (seen or transaction.outcome is Outcome.OK):
        return f"shows {len(seen)} of {len(transaction.sends)} records"
    return ""


def _closed(transaction: Operation, inits: Sequence[Operation]) -> str:
    """Whether a transaction ended before its EndTxn, and by no InitProducerId, whose outcome does not matter."""
    if transaction.outcome is not Outcome.FAIL or _STATE_CHANGED not in transaction.error:
        return ""
    for init in inits:
        begun = transaction.complete is None or init.invoke < transaction.complete
        if begun and (init.complete is None or init.complete > transaction.invoke):
            return ""
    return "was no longer open"


def _read_before(send: Send, asked: int, read: FirstReads) -> bool:
    found = read.get((send.topic, send.partition, send.value))
    return found is not None and found[0] < asked


def _visible(operation: Operation, logs: _Logs) -> list[Send]:
    return [send for send in operation.sends if send.value in logs[send.topic, send.partition].read]


def _identity(init: Operation) -> Producer:
    assert init.producer is not None  # _fences takes no others
    return init.producer


def _name(operation: Operation) -> str:
    producer = operation.producer
    identity = f" (producer {producer.producer_id} epoch {producer.epoch})" if producer is not None else ""
    return f"{operation.transactional_id}{identity}"
