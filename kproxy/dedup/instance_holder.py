"""The process that has an ``instance.id``: entries of the compacted topic ``__kproxy_producer_state``.

Two processes of one name would take each other's producer ids for those of a dead process. So each process notes
itself before it uses any, and names the producer id and epoch under which it writes its entries of the topic. The next
process writes its own note under the next epoch of that producer id: from then on the broker refuses what the former
one writes to the topic, wherever that runs and whatever it knows.

A process that can't tell whether the former one is alive writes a question beside the note. A living process answers by
writing its note again. Questions, and notes that a living process has to see at once, are as long as a long poll waits
for (``BELL_BYTES``), so that entries of other instances in the same partition do not wake it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from xxhash import xxh3_128_digest

from kproxy.codec._generated.instance_holder_key import InstanceHolderKey
from kproxy.codec._generated.instance_holder_value import InstanceHolderValue
from kproxy.codec.records import Record
from kproxy.codec.stored import decode_stored, encode_stored
from kproxy.dedup.producer_ids import LAST_EPOCH, is_kproxy_producer_id
from kproxy.errors import RemoteProtocolError

_KEY_VERSION: Final = 2
_KEY_BEGINS: Final = _KEY_VERSION.to_bytes(2, "big")
_VALUE_VERSION: Final = 0
#: A long poll for notes and questions ends when so many bytes have been appended, as a rule by one of these.
BELL_BYTES: Final = 16_384
_NOBODY: Final = bytes(16)
#: So many names are followed, those with the newest notes.
_MOST_NAMES: Final = 10_000


class Process(NamedTuple):
    """One process of kproxy."""

    #: Random, 16 bytes.
    process_id: bytes
    host: str
    pid: int
    #: In ms since 1970.
    started_ms: int
    #: Of the kernel that it runs on, and its network namespace there; empty if they are not known.
    boot_id: str = ""
    namespace: str = ""


class Claim(NamedTuple):
    """The mark that distinguishes a process's notes from all others. One that lost its producer id has several."""

    process_id: bytes
    producer_id: int
    epoch: int


class Holder(NamedTuple):
    """A process that has the name, and what it writes its entries of the topic under."""

    process: Process
    producer_id: int
    epoch: int
    #: Of the cluster that it serves; None: brokers before Kafka 0.10.1 say none.
    cluster_id: str | None = None
    #: It has ended in good order, and writes nothing any more.
    stopped: bool = False
    #: The process whose question it answers.
    answered: bytes = _NOBODY

    @property
    def claim(self) -> Claim:
        """The mark that later notes of the same process have, too."""
        return Claim(self.process.process_id, self.producer_id, self.epoch)

    def fences(self, other: "Holder | None") -> bool:
        """Whether the broker refuses what another one writes once this note is in the log."""
        return other is not None and other.producer_id == self.producer_id and other.epoch < self.epoch


def is_holder_entry(record: Record) -> bool:
    """Whether a record of the topic is a note or a question."""
    return record.key is not None and record.key.startswith(_KEY_BEGINS)


def encode_key(instance_id: str, *, question: bool = False) -> bytes:
    """The key of the note, or of the question. LocalProtocolError if it can't be said."""
    return encode_stored(InstanceHolderKey(instance_id, question), _KEY_VERSION)


def encode_value(holder: Holder, padding: bytes = b"") -> bytes:
    """The value of a note, or of a question. LocalProtocolError if it can't be said."""
    value = InstanceHolderValue(
        *holder.process,
        cluster_id=holder.cluster_id,
        producer_id=holder.producer_id,
        epoch=holder.epoch,
        stopped=holder.stopped,
        answered=holder.answered,
        padding=padding,
    )
    return encode_stored(value, _VALUE_VERSION)


def decode_value(data: bytes) -> Holder:
    """The note, or the question. UnknownRecord; RemoteProtocolError if it is damaged."""
    value = decode_stored(InstanceHolderValue, data, _VALUE_VERSION)
    if not 0 <= value.epoch <= LAST_EPOCH or not is_kproxy_producer_id(value.producer_id):
        raise RemoteProtocolError(f"no note: epoch {value.epoch} of producer id {value.producer_id}")
    process = Process(value.process_id, value.host, value.pid, value.started_ms, value.boot_id, value.namespace)
    return Holder(process, value.producer_id, value.epoch, value.cluster_id, value.stopped, value.answered)


class Holders:
    """The notes and questions of one instance, in the order of the log."""

    def __init__(self, instance_id: str) -> None:
        self._instance_id = instance_id
        #: The process that has the name; None: no note was read.
        self.holder: Holder | None = None
        #: What that note followed: the newest note of another claim.
        self.before: Holder | None = None
        #: The process that asks whether the holder is alive.
        self.question: Process | None = None
        #: Entries that can't be read.
        self.damaged = 0

    def take(self, record: Record) -> bool:
        """Takes the next record of the log if it is such an entry; whether it is."""
        if not is_holder_entry(record):
            return False
        try:
            self._apply(record)
        except RemoteProtocolError:
            self.damaged += 1
        return True

    def _apply(self, record: Record) -> None:
        key = decode_stored(InstanceHolderKey, record.key, _KEY_VERSION)
        if key.instance_id != self._instance_id:
            return
        if key.question:
            self.question = None if record.value is None else decode_value(record.value).process
        elif record.value is not None:
            told = decode_value(record.value)
            if self.holder is None or told.claim != self.holder.claim:
                self.before = self.holder
            self.holder = told


class HolderChanges:
    """The process that has each name now, by the notes of all instances in the order of the log."""

    def __init__(self, succeeded: Callable[[str], None]) -> None:
        """``succeeded`` is called with an instance_id of which another process was known before."""
        self._succeeded = succeeded
        #: By the digest of the key of a note: a name may be long.
        self._processes: dict[bytes, bytes] = {}

    def take(self, record: Record) -> bool:
        """Takes the next record of the log if it is a note or a question; whether it is. One that is damaged tells
        nothing.
        """
        if not is_holder_entry(record):
            return False
        with suppress(RemoteProtocolError):
            self._apply(record)
        return True

    def _apply(self, record: Record) -> None:
        key = decode_stored(InstanceHolderKey, record.key, _KEY_VERSION)
        if key.question or record.key is None or record.value is None:
            return
        name, process_id = xxh3_128_digest(record.key), decode_value(record.value).process.process_id
        if self._processes.pop(name, process_id) != process_id:
            self._succeeded(key.instance_id)
        self._processes[name] = process_id
        if len(self._processes) > _MOST_NAMES:
            del self._processes[next(iter(self._processes))]
