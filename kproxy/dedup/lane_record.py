"""The entry of a lane, written before its first use: which producer has which producer id and epochs.

The entries of the compacted topic ``__kproxy_producer_state``. Key and value begin with a version (int16), as those of
Kafka's ``__consumer_offsets`` do; what follows is in the grammar of the wire messages (``schema/kproxy``).
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from kproxy.codec._generated.producer_state_key import ProducerStateKey
from kproxy.codec._generated.producer_state_value import ProducerStateValue
from kproxy.codec.stored import decode_stored, encode_stored
from kproxy.dedup.identity import Identity
from kproxy.dedup.listed import InDoubt, of_rows, to_rows
from kproxy.dedup.producer_ids import LAST_EPOCH, is_kproxy_producer_id
from kproxy.errors import RemoteProtocolError

#: What this kproxy writes; one that is older than the entry leaves it alone.
KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0


class LaneKey(NamedTuple):
    """The key of an entry. One for each producer id, so that the topic grows with these and not with leases."""

    instance_id: str
    producer_id: int


class LaneRecord(NamedTuple):
    """A producer's right to the epochs from ``epoch`` to ``last_epoch`` of a producer id, since ``recorded_ms``.

    ``producer_id`` is the one in the batches (with kproxy's bit set). The time is in ms since 1970.
    """

    instance_id: str
    producer_id: int
    epoch: int
    last_epoch: int
    identity: Identity
    recorded_ms: int
    #: The connection has ended and the outcome of each batch is known: the broker refuses what is still in flight of
    #: these epochs, or knows it (``verification.models.fences``).
    returned: bool = False
    #: The instance knows that the producer writes through another one at the same time.
    shared: bool = False
    #: What was in doubt of the producer at this instance when the entry was written; None: it does not say.
    in_doubt: InDoubt | None = None
    #: Another process has the instance's name since: this one has ended, or must end. Known to readers, not stored.
    is_left: bool = False

    @property
    def is_held(self) -> bool:
        """Whether the process that wrote the entry may still use the epochs, as far as is known."""
        return not (self.returned or self.is_left)

    @property
    def says_all(self) -> bool:
        """Whether a client that leaves now repeats nothing that was written under it and is not listed."""
        return self.returned and self.in_doubt is not None and not self.in_doubt.is_cut

    @property
    def key(self) -> LaneKey:
        """The key under which a later entry replaces this one."""
        return LaneKey(self.instance_id, self.producer_id)


def encode_key(key: LaneKey) -> bytes:
    """The key of an entry; LocalProtocolError if it can't be said."""
    return encode_stored(ProducerStateKey(key.instance_id, key.producer_id), KEY_VERSION)


def encode_value(record: LaneRecord) -> bytes:
    """The value of an entry; LocalProtocolError if it can't be said."""
    value = ProducerStateValue(
        record.epoch, record.last_epoch, *record.identity, record.recorded_ms, record.returned, record.shared
    )
    if record.in_doubt is not None:
        value.listed_ms, value.list_is_cut = record.in_doubt.at_ms, record.in_doubt.is_cut
        value.listed = to_rows(record.in_doubt.batches)
    return encode_stored(value, VALUE_VERSION)


def decode_key(data: bytes | None) -> LaneKey:
    """The key of an entry. UnknownRecord; RemoteProtocolError if it is damaged."""
    key = decode_stored(ProducerStateKey, data, KEY_VERSION)
    return LaneKey(key.instance_id, key.producer_id)


def decode_value(key: LaneKey, data: bytes) -> LaneRecord:
    """The entry of a key. UnknownRecord; RemoteProtocolError if it is damaged."""
    value = decode_stored(ProducerStateValue, data, VALUE_VERSION)
    if not 0 <= value.epoch <= value.last_epoch <= LAST_EPOCH or not is_kproxy_producer_id(key.producer_id):
        # whichever client wrote this: no other producer may be fenced for it
        raise RemoteProtocolError(f"no lane: epochs {value.epoch} to {value.last_epoch} of {key.producer_id}")
    identity = Identity(value.principal, value.client_id, value.host)
    in_doubt = InDoubt(value.listed_ms, of_rows(value.listed), value.list_is_cut) if value.listed_ms else None
    epochs = value.epoch, value.last_epoch
    return LaneRecord(*key, *epochs, identity, value.recorded_ms, value.returned, value.shared, in_doubt)


def describe(key: bytes | None, value: bytes | None) -> str:
    """One line of text for an entry as it is stored, whatever it is; a value of None is a tombstone."""
    try:
        lane = decode_key(key)
        what = f"instance={lane.instance_id!r} producer={lane.producer_id}"
        if value is None:
            return f"{what} forgotten"
        record = decode_value(lane, value)
    except RemoteProtocolError as error:
        return f"unreadable ({error}): key={(key or b'').hex()} value={(value or b'').hex()}"
    principal, client_id, host = record.identity
    who = f"principal={principal!r} client_id={client_id!r} host={host!r}"
    state = (" returned" if record.returned else "") + (" shared" if record.shared else "")
    if record.in_doubt is not None:
        state += f" in_doubt={len(record.in_doubt.batches)}{'+' if record.in_doubt.is_cut else ''}"
    return f"{what} epochs={record.epoch}-{record.last_epoch} {who} recorded={_time(record.recorded_ms)}{state}"


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
