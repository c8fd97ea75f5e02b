"""Lanes: which connection owns which sequence numbers, and which batches are in flight.

A lane is one producer id, leased by one client connection at a time. Under it each partition has a track: its epoch,
its next sequence and its batches in flight, oldest first. The epoch of each track rises separately, since a broker
keeps epoch and sequence for each (producer id, partition) (Kafka's ``ProducerStateManager``).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kproxy.codec.batch import BatchHeader, stamp
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionRef
from kproxy.codec.sequence import advance
from kproxy.dedup.produce_outcome import ProduceOutcome, outcome_of
from kproxy.dedup.producer_ids import KPROXY_BIT, LAST_EPOCH, LEASE_EPOCHS
from kproxy.errors import LocalProtocolError

TrackKey: TypeAlias = PartitionRef

#: A broker answers so each time to a batch that it can't read; after so many responses its word is passed on.
SERVER_ERROR_PATIENCE = 10
#: After so many seconds without a batch the next one of a track is alone in flight: the broker may have forgotten the
#: producer. Brokers do so after ``producer.id.expiration.ms`` (a day); old ones also when retention or DeleteRecords
#: removes its last batch. It costs the batch after that one a round trip, so a lower value costs more of them.
SILENCE_S: Final = 2.0
_NOTHING = memoryview(b"")


@dataclass(slots=True, eq=False)
class Send:
    """One batch for one partition, from acceptance until its outcome is known; after that it holds no bytes."""

    track: "Track"
    batch: memoryview
    records: int
    #: When it was taken from the client, in seconds since the epoch.
    taken_at: float
    sequence: int
    #: Of the track, when it was stamped last.
    epoch: int
    #: How often it was sent again.
    attempts: int = 0
    #: An attempt ended without an outcome: a copy may be in the log, or may still arrive there.
    ever_open: bool = False
    #: How often the broker could not say what went wrong.
    server_errors: int = 0
    outcome: ProduceOutcome | None = None
    settled: bool = False
    #: The success was reported (``Producer``).
    noted: bool = False
    #: The log has lost it since.
    lost: bool = False
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1

    @property
    def key(self) -> TrackKey:
        """The partition."""
        return self.track.key

    @property
    def is_in_log(self) -> bool:
        """Whether it was written, and is not known to be lost."""
        return self.outcome is ProduceOutcome.WRITTEN and not self.lost

    def restamp(self, sequence: int) -> None:
        """Writes the track's producer id and epoch and ``sequence`` into the batch; its payload is not read."""
        self.sequence, self.epoch = sequence, self.track.epoch
        stamp(self.batch, self.track.producer_id, self.track.epoch, sequence)


@dataclass(slots=True, eq=False)
class Track:
    """One partition's sequences under one producer id."""

    key: TrackKey
    producer_id: int
    epoch: int
    #: The last epoch that the lease reserves.
    last_epoch: int = LAST_EPOCH
    next_sequence: int = 0
    #: A broker takes the first batch of a producer id that it does not know, or has forgotten, at any sequence; until
    #: one is in, no other may be in flight that could overtake it.
    established: bool = False
    sends: deque[Send] = field(default_factory=deque)
    #: An attempt of this epoch ended without an outcome: a copy may be in flight, even of a batch that is settled.
    ever_open: bool = False
    #: Since when the epoch is fenced off from all before it, in seconds since the epoch.
    fenced_at: float = 0.0
    #: The offset after the last batch that is known to be in the log before all batches that are held; -1: none is.
    written_to: int = -1
    #: A copy of a batch that was given up may be in flight, and nothing was fenced.
    left_copies: bool = False
    #: The batch of this epoch that was written last; the broker expects the sequence number that follows it.
    _newest: Send | None = None

    def has_room(self, limit: int) -> bool:
        """Whether another batch may be sent now, with at most ``limit`` in flight."""
        return len(self.sends) < (limit if self.established else 1)

    def accept(self, batch: memoryview, records: int, taken_at: float) -> Send:
        """Stamps a new batch in place with the next sequence and holds it until its outcome is definite.

        ``taken_at``: when the client's request came, in seconds since the epoch.
        """
        if not self.sends and self._may_be_forgotten(taken_at):
            self.established = False
        sequence = self.next_sequence
        stamp(batch, self.producer_id, self.epoch, sequence)
        send = Send(self, batch, records, taken_at, sequence, self.epoch)
        self.next_sequence = advance(sequence, records)
        self.sends.append(send)
        return send

    def _may_be_forgotten(self, now: float) -> bool:
        """Whether the broker may know the producer no more; also where the clock was set back."""
        newest = self._newest
        return newest is not None and not 0 <= now - newest.taken_at < SILENCE_S

    def answered(self, send: Send, error_code: int, base_offset: int, log_append_time_ms: int) -> bool:
        """Notes a response to an attempt. True if the batch is in the log: then it is settled and held no more."""
        if not error_code:
            self._written(send, base_offset, log_append_time_ms)
            return True
        outcome: ProduceOutcome | None = outcome_of(error_code)
        if outcome in (ProduceOutcome.OUT_OF_SEQUENCE, ProduceOutcome.SUPERSEDED) and send is not self.sends[0]:
            outcome = None  # the batch before it failed; it has to wait for that one, and says nothing by itself
        if outcome is ProduceOutcome.OPEN:
            send.ever_open = self.ever_open = True
        if error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            send.server_errors += 1
            if send.server_errors >= SERVER_ERROR_PATIENCE:
                outcome = ProduceOutcome.REFUSED
        send.outcome, send.error_code = outcome, error_code
        if outcome is not ProduceOutcome.WRITTEN:
            return False
        self._written(send, base_offset, log_append_time_ms)
        return True

    def lost(self, send: Send) -> None:
        """Notes that the connection ended before the response came."""
        send.outcome, send.ever_open, self.ever_open = ProduceOutcome.OPEN, True, True

    @property
    def may_be_written(self) -> bool:
        """Whether a copy of a batch that is held may be in the log, or in flight."""
        return any(send.ever_open for send in self.sends)

    def refuse(self, send: Send, error_code: int) -> None:
        """Settles the oldest batch as refused. What follows gets its sequence; none ``may_be_written``.

        Where a later batch is in the log (a broker that lost the producer's state takes it at any sequence), a new
        epoch begins instead: the broker would take another batch at that sequence for one that it has.
        LocalProtocolError if there is no epoch left.
        """
        send.error_code = error_code
        self._settle(send)
        newest = self._newest
        if newest is None or advance(newest.sequence, newest.records) == send.sequence:
            self._renumber(send.sequence)
        else:
            self.bump()

    def bump(self) -> None:
        """Begins a new epoch at sequence 0 and stamps all that is held again, in order (KIP-360).

        LocalProtocolError if the lease reserves no more: then the lane's connection has to end.
        """
        if self.epoch >= self.last_epoch:
            raise LocalProtocolError(f"producer id {self.producer_id} has no epoch left behind {self.epoch}")
        self.epoch += 1
        self.established = self.ever_open = False
        self._newest = None
        self._renumber(0)

    def fenced(self, found: Mapping[tuple[int, int], int], now: float) -> None:
        """Records that the broker was fenced for the next epoch at ``now`` (seconds), and what its log holds.

        ``found``: (epoch, base sequence) -> base offset, of this producer's batches. Those are settled as written. The
        oldest of the others is settled as refused, if it was refused; the rest is sent again under the next epoch.
        LocalProtocolError if no epoch is left.
        """
        head = self.sends[0] if self.sends else None
        for send in list(self.sends):
            offset = found.get((self.epoch, send.sequence))
            if offset is not None:
                self._written(send, offset, -1)
            else:
                send.ever_open = False
        if head is not None and head.outcome is ProduceOutcome.REFUSED:
            self._settle(head)
        for send in self.sends:
            if send.outcome is not ProduceOutcome.REFUSED:
                send.outcome = ProduceOutcome.FENCED
        self.fenced_at = now
        self.bump()

    def shows_its_log(self, found: Iterable[BatchHeader]) -> bool:
        """Whether a log is the one that ``written_to`` is of, by the track's batches from the offset before it on.

        It is another one where the topic was deleted and made again: what was written there may lie below.
        """
        held = {(send.epoch, send.sequence) for send in self.sends}
        ends = {
            header.base_offset + header.last_offset_delta + 1
            for header in found
            if (header.producer_epoch, header.base_sequence) not in held
        }
        return self.written_to <= 0 or self.written_to in ends

    def give_up(self, error_code: int) -> frozenset[tuple[int, int]]:
        """Settles all batches that are held as refused: the partition does not exist, and nothing can be fenced there.

        Returns (epoch, sequence) of those that a partition which appears later may still receive. Then a new epoch
        begins, by which they can be fenced. LocalProtocolError if there is none left.
        """
        copies = frozenset((send.epoch, send.sequence) for send in self.sends if send.ever_open)
        if copies:
            self.bump()
            self.left_copies = True
        for send in list(self.sends):
            send.outcome, send.error_code = ProduceOutcome.REFUSED, error_code
            self._settle(send)
        if copies:
            self.next_sequence = 0
        return copies

    def _written(self, send: Send, base_offset: int, log_append_time_ms: int) -> None:
        send.outcome, send.error_code = ProduceOutcome.WRITTEN, 0
        send.base_offset, send.log_append_time_ms = base_offset, log_append_time_ms
        self.established = True
        self._newest = send
        if send is self.sends[0] and base_offset >= 0:
            self.written_to = base_offset + send.records
        self._settle(send)

    def _renumber(self, sequence: int) -> None:
        for send in self.sends:
            send.restamp(sequence)
            sequence = advance(sequence, send.records)
        self.next_sequence = sequence

    def _settle(self, send: Send) -> None:
        send.settled, send.batch = True, _NOTHING
        self.sends.remove(send)


class Lane:
    """One producer id under lease, with the epochs that the lease reserves; its tracks by (topic, partition)."""

    __slots__ = ("epoch", "last_epoch", "producer_id", "tracks")

    def __init__(self, producer_id: int, epoch: int = 0, last_epoch: int | None = None) -> None:
        """Takes a producer id as kproxy assigns it (bit 62 set) and the epoch at which new tracks begin.

        ``last_epoch``: the last that it reserves, where that is known from an earlier process.
        """
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_epoch = epoch + LEASE_EPOCHS - 1 if last_epoch is None else last_epoch
        self.tracks: dict[TrackKey, Track] = {}

    def track(self, key: TrackKey) -> Track:
        """The track of a partition, made when first asked for."""
        found = self.tracks.get(key)
        if found is None:
            found = self.tracks[key] = Track(key, self.producer_id, self.epoch, self.last_epoch)
        return found

    def forget_unused(self, track: Track) -> bool:
        """Drops a track under which nothing was written, so that made-up topics cost no memory; False if it is used."""
        unused = not (track.sends or track.established or track.next_sequence) and track.epoch == self.epoch
        if unused:
            self.tracks.pop(track.key, None)
        return unused

    @property
    def used_epoch(self) -> int:
        """The highest epoch of its tracks; its first, if there is none."""
        return max((track.epoch for track in self.tracks.values()), default=self.epoch)

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it can be written any more that is not known."""
        return not any(track.sends or track.left_copies for track in self.tracks.values())

    def unsettled(self) -> list[Track]:
        """The tracks with batches whose outcome is not definite."""
        return [track for track in self.tracks.values() if track.sends]


class LanePool:
    """The lanes that no connection holds. Each lease has its own epochs, so late copies of an earlier one are fenced.

    Between two leases' epochs one is left out: a marker of it fences the earlier lease and not the later.
    """

    def __init__(self) -> None:
        """An empty pool."""
        self._free: list[Lane] = []
        self.leased = 0

    def lease(self) -> Lane | None:
        """A lane to use from now on; None where a new producer id must be had first (see ``adopt``)."""
        if not self._free:
            return None
        self.leased += 1
        return self._free.pop()

    def adopt(self, broker_producer_id: int) -> Lane:
        """Makes a leased lane of a producer id that the broker has just allocated (unique in the cluster)."""
        self.leased += 1
        return Lane(broker_producer_id | KPROXY_BIT, 0)

    def give_back(self, lane: Lane) -> None:
        """Ends a lease. A lane that has not ended, or with too few epochs left, is not used again."""
        self.leased -= 1
        following = Lane(lane.producer_id, lane.last_epoch + 2)
        if lane.has_ended and following.last_epoch < LAST_EPOCH:
            self._free.append(following)
