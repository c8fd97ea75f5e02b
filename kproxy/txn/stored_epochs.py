"""The epoch at the broker of each client of ``broker-fenced``, by which the next kproxy continues for that client.

Entries of the compacted topic ``__kproxy_producer_state``, beside those of lanes; the version of the key tells them
apart. ``procedures.continuing`` and ``procedures.kept_epoch`` say when they are written.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from kproxy.codec._generated.stored_epoch_key import StoredEpochKey
from kproxy.codec._generated.stored_epoch_value import StoredEpochValue
from kproxy.codec.messages import ErrorCode
from kproxy.codec.records import Record
from kproxy.codec.stored import UnknownRecord, decode_stored, encode_stored
from kproxy.errors import RemoteProtocolError
from kproxy.txn.claims import fenced
from kproxy.txn.ids import Producer
from kproxy.txn.txn_error import TxnError

_KEY_VERSION: Final = 1
_KEY_BEGINS: Final = _KEY_VERSION.to_bytes(2, "big")
_VALUE_VERSION: Final = 0
#: More transactional ids than an instance has; about 20 MB.
MOST_IDS: Final = 50_000


class LastEnd(IntEnum):
    """The end of a client's last transaction, or of the one that its former kproxy left open."""

    NONE = 0
    """No transaction has ended, or its client has heard of the end."""
    COMMITTED = 1
    ABORTED = 2
    LOST = 3
    """Something that the client wrote is aborted, or may be: the client has to abort."""
    LEFT = 4
    """The end is not recorded, and the client can't be continued. Those with lower epochs were replaced."""


class StoredEpoch(NamedTuple):
    """One client, by the identity that it knows, and the one that it has at the broker."""

    client: Producer
    upstream: Producer
    last: LastEnd
    timeout_ms: int
    #: In ms since 1970.
    recorded_ms: int


def continued(stored: StoredEpoch | None, client: Producer, count_fenced: Callable[[], None]) -> StoredEpoch:
    """The entry by which a client continues. TxnError if its identity is not the one of the id's entry.

    PRODUCER_FENCED, which ``count_fenced`` counts, if the entry names a newer one; else INVALID_PRODUCER_ID_MAPPING.
    """
    if stored is not None and stored.client.producer_id == client.producer_id and stored.client > client:
        count_fenced()
        raise fenced(stored.client)
    if stored is None or stored.client != client or stored.last is LastEnd.LEFT:
        why = "this kproxy has not given out its producer id: it was restarted, or another has"
        raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)
    return stored


def is_stored_epoch(record: Record) -> bool:
    """Whether a record of the topic is one of these entries."""
    return record.key is not None and record.key.startswith(_KEY_BEGINS)


def encode_key(instance_id: str, transactional_id: str) -> bytes:
    """The key of an entry; LocalProtocolError if it can't be said."""
    return encode_stored(StoredEpochKey(instance_id, transactional_id), _KEY_VERSION)


def encode_value(stored: StoredEpoch) -> bytes:
    """The value of an entry."""
    value = StoredEpochValue(*stored.client, *stored.upstream, stored.last, stored.timeout_ms, stored.recorded_ms)
    return encode_stored(value, _VALUE_VERSION)


def decode_value(data: bytes) -> StoredEpoch:
    """The entry. UnknownRecord; RemoteProtocolError if it is damaged."""
    value = decode_stored(StoredEpochValue, data, _VALUE_VERSION)
    try:
        last = LastEnd(value.last_end)
    except ValueError:
        raise UnknownRecord(f"an end of kind {value.last_end}") from None
    client = Producer(value.client_producer_id, value.client_epoch)
    upstream = Producer(value.producer_id, value.epoch)
    if min(*client, *upstream) < 0:
        raise RemoteProtocolError(f"no producer: {client}, {upstream}")
    return StoredEpoch(client, upstream, last, value.transaction_timeout_ms, value.recorded_ms)


class _Entry(NamedTuple):
    stored: StoredEpoch
    #: The time of the record, in ms since 1970.
    appended_ms: int


class StoredEpochs:
    """Those of one instance: of each transactional id the last entry counts, compacted or not."""

    def __init__(self, instance_id: str, most: int = MOST_IDS) -> None:
        """Keeps at most ``most`` entries, the ones last written."""
        self._instance_id = instance_id
        self._most = most
        #: The first to be written first.
        self._epochs: dict[str, _Entry] = {}
        #: Entries that can't be read: their clients are refused.
        self.damaged = 0

    def take(self, record: Record) -> bool:
        """Takes the next record of the log if it is such an entry; whether it is."""
        if not is_stored_epoch(record):
            return False
        try:
            self._apply(record)
        except RemoteProtocolError:
            self.damaged += 1
        return True

    def _apply(self, record: Record) -> None:
        key = decode_stored(StoredEpochKey, record.key, _KEY_VERSION)
        if key.instance_id != self._instance_id:
            return
        self._epochs.pop(key.transactional_id, None)  # replaced, even if what replaces it can't be read
        if record.value is None:
            return
        self._epochs[key.transactional_id] = _Entry(decode_value(record.value), record.timestamp)
        if len(self._epochs) > self._most:
            del self._epochs[next(iter(self._epochs))]

    def of(self, transactional_id: str) -> StoredEpoch | None:
        """The entry of an id."""
        entry = self._epochs.get(transactional_id)
        return None if entry is None else entry.stored

    def expire(self, since_ms: int) -> None:
        """Forgets what was written before: it does not count any more."""
        while self._epochs and next(iter(self._epochs.values())).appended_ms < since_ms:
            del self._epochs[next(iter(self._epochs))]

    def clear(self) -> None:
        """Forgets all."""
        self._epochs.clear()

    def before(self, recorded_ms: int) -> list[str]:
        """The ids whose clients' epochs were recorded before a time."""
        return [name for name, entry in self._epochs.items() if entry.stored.recorded_ms < recorded_ms]

    def __iter__(self) -> Iterator[tuple[str, StoredEpoch, int]]:
        """Each id and its entry, and when that was written (ms since 1970)."""
        return ((name, entry.stored, entry.appended_ms) for name, entry in self._epochs.items())
