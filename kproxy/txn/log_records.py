"""The records of the transaction log ``__kproxy_transaction_state``: what they are, their bytes, their text.

Key and value begin with a version (int16), as those of Kafka's ``__transaction_state`` do; what follows is in the
grammar of the wire messages (``schema/kproxy``). A reader that meets an unknown kind or version must decide nothing.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec._generated.transaction_log_key import TransactionLogKey
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec._generated.transaction_mirrored import TransactionMirrored
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec._generated.transaction_reject import TransactionReject
from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.codec.messages import Message
from kproxy.codec.stored import UnknownRecord, decode_stored, encode_stored

__all__ = ["Entry", "RawRecord", "RecordKind", "UnknownRecord", "decode", "encode"]

_KEY_VERSION: Final = 0
#: The second is for entries that an older reader would misread, so that it decides nothing more: a
#: member whose transaction the broker has, and a claim that continues an open transaction.
_PLAIN, _LATER = 0, 1


class RecordKind(IntEnum):
    """The statement of a record about a transactional id."""

    CLAIM = 0
    """An instance takes the id and the next block of epochs; all that is undecided below is aborted, unless it is named
    as to be continued."""
    PARTITIONS = 1
    """A transaction begins, or continues in partitions that its block has not written yet."""
    OFFSETS = 2
    """Offsets of a consumer group that move if the transaction is committed."""
    DECISION = 3
    """A transaction is committed or aborted."""
    MEMBER = 4
    """A producer with an id of its own joins the owner's transaction."""
    PREPARE = 5
    """A part is durable: claims leave it alone, the then owner decides it."""
    MIRRORED = 6
    """The offsets of a committed transaction are in the broker's own group offsets, too."""
    EXPIRY = 7
    """The id was not used for transactional.id.timeout.ms."""
    SNAPSHOT = 8
    """The state after all records before an offset, or a chunk of it; its key names no id."""
    REJECT = 9
    """Data under a producer id that no partition knows are aborted for good; its key names no id."""
    ENDED = 10
    """The broker has been told how a member's transaction ends that it keeps."""


_MESSAGES: Mapping[RecordKind, type[Message]] = MappingProxyType(
    {
        RecordKind.CLAIM: TransactionClaim,
        RecordKind.PARTITIONS: TransactionPartitions,
        RecordKind.OFFSETS: TransactionOffsets,
        RecordKind.DECISION: TransactionDecision,
        RecordKind.MEMBER: TransactionMember,
        RecordKind.PREPARE: TransactionPrepare,
        RecordKind.MIRRORED: TransactionMirrored,
        RecordKind.EXPIRY: TransactionExpiry,
        RecordKind.SNAPSHOT: TransactionSnapshot,
        RecordKind.REJECT: TransactionReject,
        RecordKind.ENDED: TransactionEnded,
    }
)
_KINDS: Mapping[type[Message], RecordKind] = MappingProxyType({message: kind for kind, message in _MESSAGES.items()})


class Entry(NamedTuple):
    """One record as it is understood."""

    transactional_id: str
    body: Message

    @property
    def kind(self) -> RecordKind:
        """The kind of its body."""
        return _KINDS[type(self.body)]


RawRecord: TypeAlias = tuple[bytes, bytes]
"""Key and value."""


def encode(entry: Entry) -> RawRecord:
    """Key and value of a record; LocalProtocolError if it can't be said."""
    key = TransactionLogKey(entry.kind, entry.transactional_id)
    body = entry.body
    later = isinstance(body, TransactionMember) and body.native is not None
    later |= isinstance(body, TransactionClaim) and body.continued_producer_id >= 0
    return encode_stored(key, _KEY_VERSION), encode_stored(body, _LATER if later else _PLAIN)


def decode(key: bytes | None, value: bytes | None) -> Entry:
    """The record; UnknownRecord if a newer kproxy wrote it, RemoteProtocolError if it is damaged."""
    named = decode_stored(TransactionLogKey, key, _KEY_VERSION)
    kind = next((kind for kind in _MESSAGES if kind == named.kind), None)
    if kind is None:
        raise UnknownRecord(f"record of kind {named.kind}")
    return Entry(named.transactional_id, decode_stored(_MESSAGES[kind], value))
