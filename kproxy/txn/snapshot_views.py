"""Views as the bytes of a snapshot, and back: field by field, so that a reader continues as if it had read the log."""

from collections import deque
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec._generated.transaction_views import (
    TransactionViews,
    TransactionViewsAborted,
    TransactionViewsAbortedMember,
    TransactionViewsBound,
    TransactionViewsClaim,
    TransactionViewsCommitted,
    TransactionViewsCopy,
    TransactionViewsDecided,
    TransactionViewsId,
    TransactionViewsMember,
    TransactionViewsNative,
    TransactionViewsOngoing,
    TransactionViewsPending,
    TransactionViewsPrepared,
    TransactionViewsUnended,
    TransactionViewsUnmirrored,
)
from kproxy.codec.stored import decode_stored, encode_stored
from kproxy.txn.epoch_set import EpochSet
from kproxy.txn.ids import Producer
from kproxy.txn.view import IdView
from kproxy.txn.view_values import (
    BATCH_IDS,
    BrokerTransaction,
    DecidedEpoch,
    EndingMember,
    IdClaim,
    Joined,
    LogPosition,
    Ongoing,
    Prepared,
)

#: Without, and with what is aborted for good (rejected producer ids, members), and with transactions of the broker's:
#: an older kproxy can't keep that.
_PLAIN, _WITH_FINAL, _WITH_BROKER = 0, 1, 2


class Stated(NamedTuple):
    """The content of a snapshot."""

    views: list[IdView]
    rejected: list[int]
    """Producer ids."""


def encode_views(views: Iterable[IdView], rejected: Collection[int] = ()) -> bytes:
    """The views and the rejected producer ids, with a version (int16) before them."""
    rows = [_id(view) for view in views]
    version = _WITH_FINAL if rejected or any(row.aborted_members for row in rows) else _PLAIN
    if any(row.unended or any(member.native for member in row.members) for row in rows):
        version = _WITH_BROKER
    return encode_stored(TransactionViews(rows, sorted(rejected)), version)


def decode_views(data: bytes) -> Stated:
    """The views of ``encode_views``. UnknownRecord if a newer kproxy wrote it, RemoteProtocolError if it is damaged."""
    found = decode_stored(TransactionViews, data)
    return Stated([_view(row) for row in found.ids], found.rejected)


def _id(view: IdView) -> TransactionViewsId:
    return TransactionViewsId(
        transactional_id=view.transactional_id,
        claim=_claim_row(view.claim) if view.claim is not None else None,
        client_producer_id=view.client.producer_id,
        client_epoch=view.client.epoch,
        generations=list(view.generations),
        committed=[TransactionViewsCommitted(pid, epochs.to_bytes()) for pid, epochs in view.committed.items()],
        aborted=[TransactionViewsAborted(*part) for part in sorted(view.aborted)],
        copies=[
            TransactionViewsCopy(*part, topic, partition, base_sequence, offset)
            for part, copies in view.copies.items()
            for (topic, partition, base_sequence), offset in copies.items()
        ],
        members=[
            TransactionViewsMember(
                *part, *joined.owner, joined.name, joined.nonce, *joined.at, _broker_row(joined.broker_transaction)
            )
            for part, joined in view.members.items()
        ],
        prepared=[
            TransactionViewsPrepared(encode_stored(one.record, _PLAIN), one.name, *one.at, *one.client)
            for one in view.prepared.values()
        ],
        bounds=[
            TransactionViewsBound(*part, *place, offset, view.first_sequences.get(part, {}).get(place, -1))
            for part, places in view.bounds.items()
            for place, offset in places.items()
        ],
        pending=[
            TransactionViewsPending(encode_stored(record, _PLAIN))
            for records in view.pending.values()
            for record in records
        ],
        unmirrored=[
            TransactionViewsUnmirrored(encode_stored(record, _PLAIN))
            for records in view.unmirrored.values()
            for record in records
        ],
        ongoing=TransactionViewsOngoing(*view.ongoing.producer, *view.ongoing.since) if view.ongoing else None,
        last=_decided_row(view.last) if view.last is not None else None,
        batch_ids=list(view.batch_ids),
        expired=view.expired,
        touched_offset=view.touched.offset,
        touched_timestamp_ms=view.touched.timestamp_ms,
        aborted_members=[
            TransactionViewsAbortedMember(pid, epochs.to_bytes()) for pid, epochs in view.aborted_members.items()
        ],
        unended=[_ending_row(part, one) for part, one in view.ending.items()],
        aborted_batch_ids=list(view.aborted_batch_ids),
    )


def _broker_row(at_broker: BrokerTransaction | None) -> TransactionViewsNative | None:
    if at_broker is None:
        return None
    name, producer, level, timeout_ms = at_broker
    return TransactionViewsNative(name, *producer, level, timeout_ms)


def _ending_row(part: Producer, one: EndingMember) -> TransactionViewsUnended:
    name, producer, level, timeout_ms = one.broker_transaction
    return TransactionViewsUnended(*part, name, *producer, level, timeout_ms, one.name, one.committed, one.empty)


def _claim_row(claim: IdClaim) -> TransactionViewsClaim:
    record = TransactionClaim(
        claim.nonce,
        claim.generation,
        claim.producer_id,
        claim.first_epoch,
        claim.epochs,
        *claim.client,
        *claim.resumed,
        claim.timeout_ms,
        claim.instance_id,
        claim.client_id,
    )
    return TransactionViewsClaim(encode_stored(record, _PLAIN), *claim.at)


def _decided_row(last: DecidedEpoch) -> TransactionViewsDecided:
    who = (*last.producer, *last.client, *last.next_client)
    return TransactionViewsDecided(*who, last.committed, last.reason, last.by_claim, *last.at)


def _view(row: TransactionViewsId) -> IdView:
    view = IdView(
        row.transactional_id,
        client=Producer(row.client_producer_id, row.client_epoch),
        generations=list(row.generations),
        committed={one.producer_id: EpochSet(one.epochs) for one in row.committed},
        aborted={Producer(one.producer_id, one.epoch) for one in row.aborted},
        aborted_members={one.producer_id: EpochSet(one.epochs) for one in row.aborted_members},
        batch_ids=deque(row.batch_ids, maxlen=BATCH_IDS),
        aborted_batch_ids=deque(row.aborted_batch_ids, maxlen=BATCH_IDS),
        expired=row.expired,
        touched=LogPosition(row.touched_offset, row.touched_timestamp_ms),
    )
    if row.claim is not None:
        view.claim = IdClaim.of(
            decode_stored(TransactionClaim, row.claim.record),
            LogPosition(row.claim.offset, row.claim.timestamp_ms),
        )
    if row.ongoing is not None:
        since = LogPosition(row.ongoing.offset, row.ongoing.timestamp_ms)
        view.ongoing = Ongoing(Producer(row.ongoing.producer_id, row.ongoing.epoch), since)
    if row.last is not None:
        view.last = _decided(row.last)
    _fill_parts(view, row)
    _fill_offsets(view, row)
    return view


def _decided(row: TransactionViewsDecided) -> DecidedEpoch:
    return DecidedEpoch(
        Producer(row.producer_id, row.epoch),
        Producer(row.client_producer_id, row.client_epoch),
        Producer(row.next_client_producer_id, row.next_client_epoch),
        row.committed,
        row.reason,
        row.by_claim,
        LogPosition(row.offset, row.timestamp_ms),
    )


def _fill_parts(view: IdView, row: TransactionViewsId) -> None:
    for copy in row.copies:
        batch = (copy.topic, copy.partition, copy.base_sequence)
        view.copies.setdefault(Producer(copy.producer_id, copy.epoch), {})[batch] = copy.base_offset
    for one in row.members:
        owner, at = Producer(one.owner_producer_id, one.owner_epoch), LogPosition(one.offset, one.timestamp_ms)
        at_broker = _broker_transaction(one.native) if one.native is not None else None
        view.members[Producer(one.producer_id, one.epoch)] = Joined(owner, one.name, one.nonce, at, at_broker)
    for left in row.unended:
        view.ending[Producer(left.producer_id, left.epoch)] = _ending(left)
    for part in row.prepared:
        record = decode_stored(TransactionPrepare, part.record)
        at = LogPosition(part.offset, part.timestamp_ms)
        client = Producer(part.client_producer_id, part.client_epoch)
        view.prepared[Producer(record.producer_id, record.epoch)] = Prepared(record, part.name, at, client)
    for bound in row.bounds:
        places = view.bounds.setdefault(Producer(bound.producer_id, bound.epoch), {})
        places[bound.topic, bound.partition] = bound.offset
        if bound.first_sequence >= 0:
            sequences = view.first_sequences.setdefault(Producer(bound.producer_id, bound.epoch), {})
            sequences[bound.topic, bound.partition] = bound.first_sequence


def _broker_transaction(row: TransactionViewsNative) -> BrokerTransaction:
    return BrokerTransaction(row.transactional_id, Producer(row.producer_id, row.epoch), row.level, row.timeout_ms)


def _ending(row: TransactionViewsUnended) -> EndingMember:
    producer = Producer(row.native_producer_id, row.native_epoch)
    at_broker = BrokerTransaction(row.transactional_id, producer, row.level, row.timeout_ms)
    return EndingMember(at_broker, row.name, row.committed, row.empty)


def _fill_offsets(view: IdView, row: TransactionViewsId) -> None:
    for pending in row.pending:
        record = decode_stored(TransactionOffsets, pending.record)
        view.pending.setdefault(Producer(record.producer_id, record.epoch), []).append(record)
    for unmirrored in row.unmirrored:
        record = decode_stored(TransactionOffsets, unmirrored.record)
        view.unmirrored.add(Producer(record.producer_id, record.epoch), record)
