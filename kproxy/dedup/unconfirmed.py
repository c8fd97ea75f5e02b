"""Unconfirmed batches: responses that a client is owed, and records whose response it may not have received."""

from array import array
from collections.abc import Callable, Collection, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Final, Protocol

from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.lanes import Send, TrackKey
from kproxy.dedup.listed import BatchPlace, ListedBatch
from kproxy.dedup.origin import ELSEWHERE, Origin, elsewhere

#: What an unconfirmed batch takes, and of each record that was read back its offset, in bytes; measured. The digests
#: come on top.
_ENTRY_BYTES: Final = 600
_RECORD_BYTES: Final = 8
_OFFSET_BYTES: Final = 64


def _no_offsets() -> "array[int]":
    return array("q")


class Wire(Protocol):
    """The facts about a client's connection that kproxy can find out."""

    @property
    def written(self) -> int:
        """Bytes of responses handed to the kernel so far."""

    def unacked(self) -> int:
        """Bytes of these that the peer's kernel has not acknowledged; after the end of the connection, by then."""

    def closed_well(self) -> bool:
        """Whether the client has closed it in good order: no RST, no time-out of the network, and not kproxy."""

    @property
    def received(self) -> int:
        """Bytes of requests so far."""

    @property
    def writing(self) -> int:
        """Bytes of responses after ``written`` of which the kernel may have taken some."""

    def arrived(self) -> int:
        """Bytes of requests so far, with those that the kernel holds unread."""

    def has_taken(self, position: int) -> bool:
        """Whether all whole requests within so many bytes were taken, or none is awaited."""

    def may_have_ended(self) -> bool:
        """Whether the client may have ended it in good order: the end is there, or may follow what is untaken."""

    def tell_taken(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` once, when the next requests were taken."""


@dataclass(slots=True, eq=False)
class Stamp:
    """The place of a batch in the log, and the numbers by which it is known there again."""

    producer_id: int
    epoch: int
    sequence: int
    #: -1: in the log, but the broker did not say where.
    base_offset: int
    records: int


@dataclass(slots=True, eq=False)
class UnconfirmedBatch:
    """Records of one batch that are in the log, and whose response the client may not have received.

    Or new records that were refused unsent: their retry is written, even if older equal ones are unconfirmed.
    """

    key: TrackKey
    stamp: Stamp
    #: Orders entries by the time of acceptance.
    serial: int
    #: The client surely had no success, however often it sent the records: no response was written, or an error was.
    sure: bool
    #: The connection ended in good order after the response.
    clean: bool
    #: Since when the connection has ended, or the response been given, in seconds.
    since: float
    log_append_time_ms: int = -1
    #: When it was taken from the client, in seconds since the epoch; 0: by a former kproxy.
    taken_at: float = 0.0
    #: A success beside errors of these partitions: repeated only where they are, too, since the whole request is.
    beside: frozenset[TrackKey] = frozenset()
    #: Those of its records; None until they are read back.
    digests: Digests | None = None
    #: The offsets of the records; those that the log holds no more are left out.
    offsets: "array[int]" = field(default_factory=_no_offsets)
    #: The timestamps of its records when it was read back, in ms.
    oldest_ms: int = UNTIMED
    newest_ms: int = UNTIMED
    #: The connection that brought it last.
    origin: Origin = ELSEWHERE
    #: It was answered there in time: no request of that connection repeats it.
    answered: bool = False
    #: Nor does one that was read there before this time (``PendingProduce.repeated_from``), in seconds.
    repeated_from: float = 0.0
    #: Some of its records were taken out of it.
    is_part: bool = False
    #: It is a part that another process has listed: of the rest nothing is known here.
    is_listed_part: bool = False
    #: The offsets of those that count once it is read back; empty: all do.
    only: frozenset[int] = frozenset()
    #: It is in the log.
    written: bool = True
    #: It was found in the log, where it was searched for since nobody knows what is in doubt. The next process finds it
    #: as well.
    found: bool = False
    #: Only a record with the same timestamp of its client repeats it: it is in doubt for want of better knowledge only.
    timed_only: bool = False
    #: A record of it was answered for one of another timestamp, which its own retries have (``taken_as``).
    retimed: bool = False
    #: It was written over a newer connection than the one that keeps it: what was sent there first may come after it.
    may_be_second: bool = False
    #: Its response was late, and the connection lives on: who had given it up would have closed that.
    late_here: bool = False
    #: Of its response on that connection, as ``Rules.telling_position`` has it.
    position: int = 0
    #: Since when it was unconfirmed for the first time, in seconds; a retry that is matched with it does not change it.
    doubted_at: float = -1.0

    def __post_init__(self) -> None:
        if self.doubted_at < 0:
            self.doubted_at = self.since

    @classmethod
    def unwritten(cls, key: TrackKey, serial: int, digests: Sequence[Digest], now: float) -> "UnconfirmedBatch":
        """Records that were refused unsent at ``now``, in seconds."""
        stamp = Stamp(-1, -1, -1, -1, len(digests))
        entry = cls(key, stamp, serial, False, False, now, repeated_from=now, written=False)
        entry.recall(Digests.of(digests), [-1] * len(digests))
        return entry

    @property
    def size(self) -> int:
        """The approximate bytes of memory that it takes."""
        size = _ENTRY_BYTES + _RECORD_BYTES * len(self.offsets) + _OFFSET_BYTES * len(self.only)
        return size if self.digests is None else size + self.digests.size

    @property
    def is_empty(self) -> bool:
        """Whether its records were read back, and none of them is left."""
        return self.digests is not None and not self.digests

    @property
    def place(self) -> BatchPlace:
        """The name by which it is known in all logs."""
        return self.key, self.stamp.producer_id, self.stamp.epoch, self.stamp.sequence

    @classmethod
    def of_list(cls, batch: ListedBatch, serial: int, clean_window: float) -> "UnconfirmedBatch":
        """A batch that another process had in doubt; its records are not read back yet.

        ``clean_window``: as in ``Origin``, of the connection that brought it.
        """
        stamp = Stamp(batch.producer_id, batch.epoch, batch.sequence, batch.base_offset, 0)
        entry = cls(batch.key, stamp, serial, False, batch.clean, batch.since_ms / 1000)
        entry.only, entry.is_part = frozenset(batch.offsets), bool(batch.offsets)
        entry.is_listed_part = entry.is_part
        entry.origin = elsewhere(clean_window)
        return entry

    def as_listed(self, since: float) -> ListedBatch:
        """The entry of this batch in a list for other processes; ``since``: in seconds."""
        stamp = self.stamp
        place = stamp.producer_id, stamp.epoch, stamp.sequence, stamp.base_offset
        left = self.only if self.digests is None else self.offsets
        return ListedBatch(self.key, *place, int(since * 1000), self.clean, tuple(sorted(left)) if self.is_part else ())

    def recall(self, digests: Digests, offsets: Sequence[int]) -> None:
        """Takes what was read back, and the offset of each record; ``digests`` are its own from then on."""
        if self.only:
            counting = [at for at, offset in enumerate(offsets) if offset in self.only]
            digests, offsets = digests.chosen(counting), [offsets[at] for at in counting]
            self.only = frozenset()
        self.digests, self.offsets = digests, array("q", offsets)
        self.oldest_ms = min(digests.times, default=UNTIMED)
        self.newest_ms = max(digests.times, default=UNTIMED)

    def has_time_of(self, place: int, record: Digest) -> bool:
        """Whether its record at ``place`` and a record have the same timestamp, given by their client."""
        assert self.digests is not None
        return record.timestamp_ms == self.digests.times[place] != UNTIMED

    def taken_as(self, place: int, record: Digest) -> None:
        """Records that a request was answered with a record in place of ``record``: its own retries have that
        timestamp.

        Otherwise a record with the timestamp of the one in the log could be matched with it again, and two requests be
        answered with one record.
        """
        assert self.digests is not None
        time = self.digests.times[place]
        if UNTIMED not in (time, record.timestamp_ms) and time != record.timestamp_ms:
            self.digests.times[place] = record.timestamp_ms
            self.retimed = True

    def forget_records(self) -> int:
        """Forgets its records, to be read back when they are needed; about how many bytes that freed."""
        if not self.digests or self.retimed or not self.written:
            return 0
        only = frozenset(self.offsets if self.is_part else ())
        freed = self.digests.size + _RECORD_BYTES * len(self.offsets) - _OFFSET_BYTES * len(only)
        if freed <= 0:
            return 0
        self.digests, self.offsets, self.only = None, _no_offsets(), only
        return freed

    def whole(self) -> "UnconfirmedBatch":
        """Take all records out, as ``part`` does."""
        other = self._like()
        other.is_part = self.is_part
        assert self.digests is not None
        digests, offsets = self.digests, self.offsets
        self.recall(Digests(), ())
        other.recall(digests, offsets)
        return other

    def _like(self) -> "UnconfirmedBatch":
        """An entry of the same batch, without records."""
        other = UnconfirmedBatch(
            self.key, self.stamp, self.serial, self.sure, False, self.since, self.log_append_time_ms, self.taken_at
        )
        other.doubted_at, other.retimed = self.doubted_at, self.retimed
        other.is_listed_part = self.is_listed_part
        return other

    def copy(self) -> "UnconfirmedBatch":
        """Another entry of the same records."""
        other = self._like()
        other.is_part, other.only = self.is_part, self.only
        if self.digests is not None:
            other.recall(self.digests.copy(), self.offsets)
        return other

    def is_within(self, other: "UnconfirmedBatch") -> bool:
        """Whether an entry of the same batch has all records of this one."""
        if not other.is_part:
            return True
        return self.is_part and set(self.only or self.offsets) <= set(other.only or other.offsets)

    def part(self, places: Sequence[int]) -> "UnconfirmedBatch":
        """Takes the records at ``places`` out, into an entry of their own."""
        assert self.digests is not None
        digests, offsets, taken = self.digests, self.offsets, set(places)
        other = self._like()
        other.is_part = self.is_part = self.is_part or len(taken) < len(digests)
        other.recall(digests.chosen(places), [offsets[at] for at in places])
        kept = [at for at in range(len(digests)) if at not in taken]
        self.recall(digests.chosen(kept), [offsets[at] for at in kept])
        return other


#: The order of entries: by the time of acceptance.
BY_AGE = attrgetter("serial")


@dataclass(slots=True, eq=False)
class PendingProduce:
    """A Produce request, from its acceptance until its client has surely received the response."""

    #: The partitions that it names.
    places: Sequence[PartitionData]
    #: When the client's own time-out is near, in seconds; a response after it counts as none.
    due: float
    #: By when it was read, in seconds; infinite if that is unknown.
    received_at: float = inf
    #: Orders requests by the time of acceptance.
    serial: int = 0
    #: And by when they were sent, as far as that is known (``ProducerConnection.sent_at``).
    sent_at: int = 0
    #: Its batches, as they are sent.
    sends: Sequence[Send] = ()
    #: Entries that it repeated: unconfirmed until this response is received.
    moved: Sequence[UnconfirmedBatch] = ()
    #: Its records by partition, if it may be repeated by what lies untaken on an older connection; of short ones.
    records: Mapping[TrackKey, Digests] | None = None
    #: The outcome of each batch is definite.
    closed: bool = False
    #: It was REQUEST_TIMED_OUT, while batches were still open.
    timed_out: bool = False
    #: The partitions whose errors were in it.
    failures: Collection[TrackKey] = ()
    #: Partitions of which it told a success all the same.
    told: Collection[TrackKey] = ()
    #: The client may send the same again on this very connection, since it does not wait for the response any more.
    given_up: bool = False
    #: It held an error that may make the client send the whole request again.
    failed: bool = False
    #: The end of the response among the bytes of the connection (0: not given yet), and when it was given.
    position: int = 0
    at: float = 0.0
    #: With which request of its connection it was known to be in the client's kernel (the number), and when that was.
    arrived_with: int = 0
    arrived_at: float = inf
    _keys: dict[TrackKey, None] | None = None

    @property
    def repeated_from(self) -> float:
        """The earliest time when its client may send it again on its own connection, in seconds."""
        return min(self.due, self.at) if self.failed and self.at else self.due

    @property
    def keys(self) -> KeysView[TrackKey]:
        """The partitions that it names, each once, as tracks have them."""
        if self._keys is None:
            self._keys = dict.fromkeys(place.key for place in self.places)
        return self._keys.keys()
