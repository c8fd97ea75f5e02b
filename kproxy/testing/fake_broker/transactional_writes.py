"""Whether a transactional batch may be appended: what a leader asks the coordinator before it does (KIP-890)."""

from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.coordination import verify
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.partition import Partition
from kproxy.testing.fake_broker.stored_batches import one_batch

_ABORTABLE_VERSION: Final = 11
_JOINING_VERSION: Final = 12


def joins(call: Call) -> bool:
    """Tell whether a Produce request takes its partitions into its transaction."""
    return call.version >= _JOINING_VERSION and call.request.transactional_id is not None


def transaction_error(call: Call, partition: Partition, records: memoryview, topic: str) -> ErrorCode:
    """Return the error of a batch that is in no transaction of its producer; NONE if it is, or is now.

    If the partition has an open transaction of the batch's producer and epoch, the coordinator is not asked: its end
    may be decided, with the marker in flight (measured on 4.3.0). Another epoch gives INVALID_PRODUCER_EPOCH. A
    producer that has not added the partition gets INVALID_TXN_STATE, from version 11 on TRANSACTION_ABORTABLE; from 12
    on the partition is added by this.
    """
    header = one_batch(records)
    if isinstance(header, ErrorCode):
        return header
    producer, place = (header.producer_id, header.producer_epoch), (topic, partition.index)
    if partition.log.transactions.is_open(*producer):
        return ErrorCode.NONE
    owner = verify(call, call.request.transactional_id, producer)
    if isinstance(owner, ErrorCode):
        return owner
    if joins(call):
        return owner.join(call.now, [place])
    if owner.prepared:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if place in owner.places:
        return ErrorCode.NONE
    return ErrorCode.TRANSACTION_ABORTABLE if call.version >= _ABORTABLE_VERSION else ErrorCode.INVALID_TXN_STATE
