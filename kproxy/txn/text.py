"""One line of text for each record of the transaction log, whatever it is.

Producer ids stand as in the batches that they wrote, with kproxy's bits: ``6917529027641082000:3`` is an epoch of one.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision, TransactionDecisionPart
from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec._generated.transaction_mirrored import TransactionMirrored
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec._generated.transaction_reject import TransactionReject
from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.errors import RemoteProtocolError
from kproxy.txn.log_records import decode

#: Hexadecimal digits of a nonce that are shown: enough to tell those of one id apart.
_DIGITS = 8


def describe(key: bytes | None, value: bytes | None) -> str:
    """A record as it is stored; one that can't be read in hexadecimal."""
    try:
        entry = decode(key, value)
    except RemoteProtocolError as error:
        return f"unreadable ({error}): key={(key or b'').hex()} value={(value or b'').hex()}"
    words = " ".join(word for word in _WORDS[type(entry.body)](entry.body) if word)
    if isinstance(entry.body, TransactionSnapshot | TransactionReject):
        return f"{entry.kind.name} {words}"
    return f"{entry.kind.name} {entry.transactional_id!r} {words}"


def _claim(body: TransactionClaim) -> Iterable[str]:
    last = body.first_epoch + body.epochs - 1
    yield f"producer={body.producer_id} epochs={body.first_epoch}-{last} generation={body.generation}"
    yield f"client={body.client_producer_id}:{body.client_epoch}"
    if body.resumed_producer_id >= 0:
        yield f"resumed={body.resumed_producer_id}:{body.resumed_epoch}"
    if body.continued_producer_id >= 0:
        yield f"continues={body.continued_producer_id}:{body.continued_epoch}"
    yield f"timeout_ms={body.transaction_timeout_ms} instance={body.instance_id!r} client_id={body.client_id!r}"
    yield _nonce(body)


def _partitions(body: TransactionPartitions) -> Iterable[str]:
    yield _part(body)
    for topic in body.topics:
        for row in topic.partitions:
            sequence = f" from={row.first_sequence}" if row.first_sequence >= 0 else ""
            yield f"{_name(topic.name, row.index)}@{row.end_offset}{sequence}"
    yield _nonce(body)


def _offsets(body: TransactionOffsets) -> Iterable[str]:
    yield f"{_part(body)} group={body.group_id!r} generation={body.generation_id}"
    yield f"member={body.member_id!r}" if body.member_id else ""
    yield f"static={body.group_instance_id!r}" if body.group_instance_id is not None else ""
    yield from (f"{_name(topic.name, row.index)}={row.offset}" for topic in body.topics for row in topic.partitions)
    yield _nonce(body)


def _decision(body: TransactionDecision) -> Iterable[str]:
    yield "COMMIT" if body.committed else "ABORT"
    yield _part(body)
    yield f"next={body.next_client_producer_id}:{body.next_client_epoch}"
    yield f"batch={body.batch_id!r}" if body.batch_id is not None else ""
    yield f"reason={body.reason!r}" if body.reason else ""
    yield from (_decided(part) for part in body.parts)
    yield _nonce(body)


def _decided(part: TransactionDecisionPart) -> str:
    return f"[{_part(part)}{_ends(part.topics)}]"


def _ends(topics: Iterable[Any]) -> str:
    """The end of the data in each partition, and the copies that count: first sequence @ offset."""
    words: list[str] = []
    for topic in topics:
        for row in topic.partitions:
            words.append(f" {_name(topic.name, row.index)}<{row.end_offset}")
            words += [f" {copy.base_sequence}@{copy.base_offset}" for copy in row.copies]
    return "".join(words)


def _member(body: TransactionMember) -> Iterable[str]:
    yield f"{body.member_producer_id}:{body.member_epoch} name={body.name!r} joins {_part(body)}"
    if (native := body.native) is not None:
        yield f"broker={native.transactional_id!r} {_part(native)} level={native.level} timeout_ms={native.timeout_ms}"
    yield f"member_nonce={body.member_nonce.hex()[-_DIGITS:]}"
    yield _nonce(body)


def _prepare(body: TransactionPrepare) -> Iterable[str]:
    yield _part(body) + _ends(body.topics)
    yield f"batch={body.batch_id!r}" if body.batch_id is not None else ""
    yield _nonce(body)


def _mirrored(body: TransactionMirrored) -> Iterable[str]:
    yield f"{_part(body)} group={body.group_id!r}"


def _ended(body: TransactionEnded) -> Iterable[str]:
    yield _part(body)


def _expiry(body: TransactionExpiry) -> Iterable[str]:
    yield _nonce(body)


def _snapshot(body: TransactionSnapshot) -> Iterable[str]:
    yield f"up_to={body.up_to} chunk={body.chunk + 1}/{body.chunks} bytes={len(body.views)}"
    yield f"writer={body.writer.hex()[-_DIGITS:]}"


def _reject(body: TransactionReject) -> Iterable[str]:
    yield f"producer={body.producer_id}"


def _part(body: Any) -> str:
    return f"{body.producer_id}:{body.epoch}"


def _nonce(body: Any) -> str:
    return f"nonce={body.nonce.hex()[-_DIGITS:]}"


def _name(topic: str, partition: int) -> str:
    """Topics that Kafka allows stand as they are; others, which somebody may have written, can't break the line."""
    return f"{topic if topic.isprintable() else repr(topic)}-{partition}"


_WORDS: Mapping[type, Callable[[Any], Iterable[str]]] = MappingProxyType(
    {
        TransactionClaim: _claim,
        TransactionPartitions: _partitions,
        TransactionOffsets: _offsets,
        TransactionDecision: _decision,
        TransactionMember: _member,
        TransactionPrepare: _prepare,
        TransactionMirrored: _mirrored,
        TransactionExpiry: _expiry,
        TransactionEnded: _ended,
        TransactionSnapshot: _snapshot,
        TransactionReject: _reject,
    }
)
