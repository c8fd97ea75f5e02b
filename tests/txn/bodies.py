"""Records of the transaction log in short form, for tests of their readers."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import (
    TransactionDecision,
    TransactionDecisionCopy,
    TransactionDecisionPart,
    TransactionDecisionPartition,
    TransactionDecisionTopic,
)
from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec._generated.transaction_member import TransactionMember, TransactionMemberNative
from kproxy.codec._generated.transaction_mirrored import TransactionMirrored
from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec._generated.transaction_partitions import (
    TransactionPartitions,
    TransactionPartitionsPartition,
    TransactionPartitionsTopic,
)
from kproxy.codec._generated.transaction_prepare import (
    TransactionPrepare,
    TransactionPreparePartition,
    TransactionPrepareTopic,
)
from kproxy.codec._generated.transaction_reject import TransactionReject
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.view_values import BrokerTransaction

CLIENT: Final = Producer(7, 0)

Copies: TypeAlias = Mapping[TopicPartition, Mapping[int, int]]
"""By partition: the base offset that counts, by base sequence."""


def nonce(number: int) -> bytes:
    """The nonce with this number."""
    return number.to_bytes(16, "big")


def producer(number: int, epoch: int) -> Producer:
    """As in batches: with both of kproxy's bits."""
    return Producer(TXN_BITS | number, epoch)


def claim(
    number: int,
    first: Producer,
    *,
    epochs: int = 2,
    generation: int = 1,
    client: Producer = CLIENT,
    continued: Producer = NOBODY,
) -> TransactionClaim:
    """The claim with the nonce ``number`` to the block of epochs that begins at ``first``."""
    return TransactionClaim(
        nonce=nonce(number),
        generation=generation,
        producer_id=first.producer_id,
        first_epoch=first.epoch,
        epochs=epochs,
        client_producer_id=client.producer_id,
        client_epoch=client.epoch,
        transaction_timeout_ms=60_000,
        instance_id=f"kproxy-{number}",
        client_id="app",
        continued_producer_id=continued.producer_id,
        continued_epoch=continued.epoch,
    )


def partitions(
    number: int, part: Producer, places: Mapping[TopicPartition, int], first_sequence: int = -1
) -> TransactionPartitions:
    """Partitions, each with the offset below which none of the data lies, and the client's first sequence."""
    topics: dict[str, TransactionPartitionsTopic] = {}
    for (name, index), end in places.items():
        topic = topics.setdefault(name, TransactionPartitionsTopic(name))
        topic.partitions.append(TransactionPartitionsPartition(index, end, first_sequence))
    return TransactionPartitions(nonce(number), *part, list(topics.values()))


def offsets(number: int, part: Producer, group: str, moved: Mapping[TopicPartition, int]) -> TransactionOffsets:
    """Offsets of a group."""
    topics: dict[str, TransactionOffsetsTopic] = {}
    for (name, index), offset in moved.items():
        topic = topics.setdefault(name, TransactionOffsetsTopic(name))
        topic.partitions.append(TransactionOffsetsPartition(index, offset))
    return TransactionOffsets(nonce(number), *part, group_id=group, generation_id=1, topics=list(topics.values()))


def member(number: int, owner: Producer, joining: Producer, joining_number: int, name: str = "") -> TransactionMember:
    """``joining`` becomes a member of the owner's transaction."""
    return TransactionMember(nonce(number), *owner, name, *joining, nonce(joining_number))


def native_member(
    number: int, owner: Producer, joining: Producer, joining_number: int, name: str, native: BrokerTransaction
) -> TransactionMember:
    """A member whose data are in a transaction of the broker's."""
    body = member(number, owner, joining, joining_number, name)
    body.native = TransactionMemberNative(native.transactional_id, *native.producer, native.level, native.timeout_ms)
    return body


def ended(part: Producer) -> TransactionEnded:
    """The broker knows how a member's transaction ends."""
    return TransactionEnded(*part)


def prepare(number: int, part: Producer, written: Iterable[TopicPartition] = ()) -> TransactionPrepare:
    """A part is durable, with what it wrote to these partitions."""
    topics = [TransactionPrepareTopic(name, [TransactionPreparePartition(index, 1)]) for name, index in written]
    return TransactionPrepare(nonce(number), *part, topics)


def decision(
    number: int,
    main: Producer,
    committed: bool,
    parts: Iterable[Producer] = (),
    *,
    copies: Mapping[Producer, Copies] | None = None,
    next_client: Producer = CLIENT,
    batch_id: str | None = None,
    ends: Mapping[Producer, Mapping[TopicPartition, int]] | None = None,
) -> TransactionDecision:
    """The decision of ``main`` and, with it, of ``parts``; ``ends``: of their data, where copies do not say it."""
    return TransactionDecision(
        nonce=nonce(number),
        producer_id=main.producer_id,
        epoch=main.epoch,
        committed=committed,
        next_client_producer_id=next_client.producer_id,
        next_client_epoch=next_client.epoch,
        batch_id=batch_id,
        parts=[
            TransactionDecisionPart(*part, _topics((copies or {}).get(part, {}), (ends or {}).get(part, {})))
            for part in parts
        ],
    )


def _topics(copies: Copies, ends: Mapping[TopicPartition, int]) -> list[TransactionDecisionTopic]:
    topics: dict[str, TransactionDecisionTopic] = {}
    for name, index in {**copies, **ends}:
        named = copies.get((name, index), {})
        rows = [TransactionDecisionCopy(sequence, offset) for sequence, offset in named.items()]
        end = ends.get((name, index), max(named.values(), default=-1) + 1)
        topics.setdefault(name, TransactionDecisionTopic(name)).partitions.append(
            TransactionDecisionPartition(index, end, rows)
        )
    return list(topics.values())


def mirrored(part: Producer, group: str) -> TransactionMirrored:
    """The broker's own group offsets have moved, too."""
    return TransactionMirrored(*part, group)


def reject(producer_id: int) -> TransactionReject:
    """What was written under a producer id is aborted."""
    return TransactionReject(producer_id)


def expiry(number: int) -> TransactionExpiry:
    """The id is not used any more."""
    return TransactionExpiry(nonce(number))
