"""What the transaction log says, as rows: its records in order, read by kproxy's own rules. Knows nothing of Spark."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, decode
from kproxy.txn.text import describe
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.views import Views

LogRecord: TypeAlias = tuple[int, int, datetime, bytes | None, bytes | None]
"""Partition of the log, offset, time, key, value."""
Row: TypeAlias = dict[str, Any]


class _Undecided(NamedTuple):
    """The undecided data that a decision is about to settle, by producer."""

    #: Where undecided data may begin.
    bounds: Mapping[Producer, Mapping[TopicPartition, int]] = MappingProxyType({})
    #: Offsets of groups.
    pending: Mapping[Producer, list[TransactionOffsets]] = MappingProxyType({})
    #: The producers under which brokers have the data of members whose transactions are theirs.
    at_broker: Mapping[Producer, Producer] = MappingProxyType({})


def fold_log(records: Iterable[LogRecord], starts: Mapping[int, int]) -> Iterator[Row]:
    """Facts (``tables.FACTS``; what is missing in a row is null) from records in order, one partition after another.

    ``starts``: the log start offset of each partition of the log. Kinds of facts: ``part`` (open or prepared now; one
    for each topic that it wrote to), ``decided`` (a partition of a committed transaction, with the offset after its
    last record and the producer under which the topic has it), ``offsets`` (of a group, by a committed transaction),
    ``known`` (a producer id), ``unreadable``.
    """
    folding: _Folding | None = None
    for partition, offset, at, key, value in records:
        if folding is None or folding.partition != partition:
            if folding is not None:
                yield from folding.end()
            folding = _Folding(partition, starts.get(partition, offset))
        yield from folding.take(offset, at, key, value)
    if folding is not None:
        yield from folding.end()


def decoded_row(record: LogRecord) -> Row:
    """One record for people and for SQL; where it can't be read it has no kind, and its text says why."""
    partition, offset, at, key, value = record
    row: Row = {"log_partition": partition, "log_offset": offset, "at": at}
    try:
        entry = decode(key, value)
    except RemoteProtocolError as error:
        return row | {"text": str(error)}
    body = entry.body
    return row | {
        "kind": entry.kind.name,
        "transactional_id": entry.transactional_id,
        "producer_id": getattr(body, "producer_id", None),
        "producer_epoch": getattr(body, "epoch", None),
        "committed": getattr(body, "committed", None),
        "text": describe(key, value),
    }


class _Folding:
    """One partition of the log, from its start to its end."""

    def __init__(self, partition: int, start: int) -> None:
        self.partition = partition
        self._views = Views(self._unreadable)
        self._views.restart(partition, start)
        self._known: set[int] = set()
        self._problem = ""
        self._last = (start, datetime.fromtimestamp(0, UTC))

    def _unreadable(self, what: str, why: str) -> None:
        self._problem = f"{what}: {why}"

    def take(self, offset: int, at: datetime, key: bytes | None, value: bytes | None) -> Iterator[Row]:
        """Facts in the next record."""
        self._last = offset, at
        undecided = self._undecided(key, value)
        for entry in self._views.apply(self.partition, LogPosition(offset, int(at.timestamp() * 1000)), key, value):
            yield from self._taken(entry, undecided)
        if self._problem:
            yield self._row("unreadable", detail=self._problem)
            self._problem = ""

    def end(self) -> Iterator[Row]:
        """Facts that are true at the end of the log."""
        if not self._views.knows(self.partition) and self.partition not in self._views.foreign:
            yield self._row("unreadable", detail="begins after its start, and no snapshot has the records before")
        for view in self._views.of_partition(self.partition):
            yield from self._at_end(view)
        for producer_id in sorted(self._views.rejected(self.partition)):
            yield from self._know(producer_id)

    def _undecided(self, key: bytes | None, value: bytes | None) -> _Undecided:
        try:
            entry = decode(key, value)
        except RemoteProtocolError:
            return _Undecided()
        view = self._views.of(entry.transactional_id)
        if view is None or not isinstance(entry.body, TransactionDecision):
            return _Undecided()
        at_broker = {
            producer: joined.broker_transaction.producer
            for producer, joined in view.members.items()
            if joined.broker_transaction is not None
        }
        return _Undecided(dict(view.bounds), dict(view.pending), at_broker)

    def _taken(self, entry: Entry, undecided: _Undecided) -> Iterator[Row]:
        body = entry.body
        if isinstance(body, TransactionClaim):
            yield from self._know(body.producer_id)
        elif isinstance(body, TransactionMember):
            yield from self._know(body.member_producer_id)
        elif isinstance(body, TransactionDecision) and body.committed:
            yield from self._decided(entry.transactional_id, body, undecided)
            settled = {Producer(part.producer_id, part.epoch) for part in body.parts}
            for producer in settled | {Producer(body.producer_id, body.epoch)}:
                for record in undecided.pending.get(producer, ()):
                    yield from self._offsets(entry.transactional_id, record)

    def _know(self, producer_id: int) -> Iterator[Row]:
        if producer_id not in self._known:
            self._known.add(producer_id)
            yield self._row("known", producer_id=producer_id)

    def _decided(self, transactional_id: str, body: TransactionDecision, undecided: _Undecided) -> Iterator[Row]:
        for part in body.parts:
            producer = Producer(part.producer_id, part.epoch)
            first = undecided.bounds.get(producer, {})
            producer_id, epoch = undecided.at_broker.get(producer, producer)
            for topic in part.topics:
                for row in topic.partitions:
                    yield self._row(
                        "decided",
                        transactional_id=transactional_id,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        batch_id=body.batch_id,
                        topic=topic.name,
                        partition=row.index,
                        offset=row.end_offset,
                        bound=first.get((topic.name, row.index)),
                    )

    def _offsets(self, transactional_id: str, record: TransactionOffsets) -> Iterator[Row]:
        for topic in record.topics:
            for row in topic.partitions:
                yield self._row(
                    "offsets",
                    transactional_id=transactional_id,
                    group_id=record.group_id,
                    generation=record.generation_id,
                    topic=topic.name,
                    partition=row.index,
                    offset=row.offset,
                )

    def _at_end(self, view: IdView) -> Iterator[Row]:
        for producer_id in sorted(view.producer_ids()):
            yield from self._know(producer_id)
        if view.ongoing is not None:
            yield from self._part(view, "open", "", view.ongoing.producer, view.ongoing.since)
        for producer, joined in view.members.items():
            if producer not in view.prepared and view.verdict(producer) is Verdict.UNDECIDED:
                yield from self._part(view, "open", joined.name, producer, joined.at)
        for producer, prepared in view.prepared.items():
            yield from self._part(view, "prepared", prepared.name, producer, prepared.at)

    def _part(self, view: IdView, state: str, member: str, producer: Producer, since: LogPosition) -> Iterator[Row]:
        """One row for each topic that the part has written to."""
        claim = view.claim
        row = self._row(
            "part",
            transactional_id=view.transactional_id,
            state=state,
            member=member,
            client_id=claim.client_id if claim is not None else "",
            instance_id=claim.instance_id if claim is not None else "",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        ) | {"at": datetime.fromtimestamp(since.timestamp_ms / 1000, UTC), "log_offset": since.offset}
        for topic in sorted({place[0] for place in view.bounds.get(producer, {})}):
            yield row | {"topic": topic}

    def _row(self, fact: str, **columns: Any) -> Row:
        offset, at = self._last
        return {"fact": fact, "log_partition": self.partition, "log_offset": offset, "at": at, **columns}
