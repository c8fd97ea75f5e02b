"""Lanes: who owns which sequences, and what is on its way.

A lane is one producer id, leased by one client connection at a time. Under it each partition has a track: its epoch,
its next sequence and its batches in flight, oldest first. A track's epoch rises on its own, since a broker keeps epoch
and sequence for each (producer id, partition) (Kafka's ``ProducerStateManager``).
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from kproxy.codec.batch import stamp
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce import TopicRef
from kproxy.dedup.fate import Fate, fate_of
from kproxy.dedup.sequence import KPROXY_BIT, LAST_EPOCH, advance
from kproxy.errors import LocalProtocolError

TrackKey: TypeAlias = tuple[TopicRef, int]

#: A lane is not leased again above this epoch; what is left up to ``LAST_EPOCH`` serves bumps during a lease.
LAST_LEASED_EPOCH = LAST_EPOCH - 1024
#: A broker answers so each time to a batch that it can't read; after so many answers its word is passed on.
SERVER_ERROR_PATIENCE = 10


@dataclass(slots=True, eq=False)
class Send:
    """One batch on its way to one partition, from acceptance until its fate is definite."""

    track: "Track"
    batch: memoryview
    records: int
    sequence: int = -1
    attempts: int = 0
    #: An attempt ended without a word about its fate: a copy may be in the log, or still on its way there.
    ever_open: bool = False
    #: A later batch is in the log and this one perhaps not: its sequence must not go to another.
    overtaken: bool = False
    #: How often the broker could not say what went wrong.
    server_errors: int = 0
    fate: Fate | None = None
    settled: bool = False
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1

    def restamp(self, sequence: int) -> None:
        """Writes the track's producer id and epoch and ``sequence`` into the batch; its payload is not read."""
        self.sequence = sequence
        self.ever_open = self.overtaken = False
        stamp(self.batch, self.track.producer_id, self.track.epoch, sequence)


@dataclass(slots=True, eq=False)
class Track:
    """One partition's sequences under one producer id."""

    key: TrackKey
    producer_id: int
    epoch: int
    next_sequence: int = 0
    #: A broker takes the first batch of a producer id that it does not know at any sequence; until one is in, no other
    #: may be in flight that could overtake it.
    established: bool = False
    sends: deque[Send] = field(default_factory=deque)

    def has_room(self, limit: int) -> bool:
        """Whether another batch may be sent now, with at most ``limit`` in flight."""
        return len(self.sends) < (limit if self.established else 1)

    def accept(self, batch: memoryview, records: int) -> Send:
        """Stamps a new batch in place with the next sequence and holds it until its fate is definite."""
        sequence = self.next_sequence
        send = Send(self, batch, records, sequence)
        stamp(batch, self.producer_id, self.epoch, sequence)
        self.next_sequence = advance(sequence, records)
        self.sends.append(send)
        return send

    def answered(self, send: Send, error_code: int, base_offset: int, log_append_time_ms: int) -> bool:
        """Notes an answer to an attempt. True if the batch is in the log: then it is settled and held no more."""
        fate: Fate | None = fate_of(error_code)
        if fate is Fate.OUT_OF_SEQUENCE and send is not self.sends[0]:
            fate = None  # the batch before it failed; it has to wait for that one, and says nothing by itself
        if error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            send.server_errors += 1
            if send.server_errors >= SERVER_ERROR_PATIENCE:
                fate = Fate.REFUSED
                send.ever_open = True
        send.fate, send.error_code = fate, error_code
        if fate is Fate.OPEN:
            send.ever_open = True
        if fate is not Fate.WRITTEN:
            return False
        send.base_offset, send.log_append_time_ms, send.error_code = base_offset, log_append_time_ms, 0
        self.established = True
        self._settle(send)
        return True

    def lost(self, send: Send) -> None:
        """Notes that the connection ended before the answer came."""
        send.fate, send.ever_open = Fate.OPEN, True

    def refuse(self, send: Send, error_code: int) -> None:
        """Settles the oldest batch as refused.

        What follows it gets its sequence. Where a copy of it may be on its way, or a later batch is in the log, that
        would let the broker take one batch for another: then a new epoch begins. Where what follows may be in the log
        behind an earlier attempt of the refused one, a new epoch would write it twice: it is tried again as it stands.
        """
        send.error_code = error_code
        self._settle(send)
        open_behind = any(other.ever_open for other in self.sends)
        if send.ever_open and open_behind:
            return
        if send.ever_open or open_behind or send.overtaken:
            self.bump()
        else:
            self._renumber(send.sequence)

    def bump(self) -> None:
        """Begins a new epoch at sequence 0 and stamps all that is held again, in order (KIP-360).

        LocalProtocolError if the producer id has no epoch left: then the lane's connection has to end.
        """
        if self.epoch >= LAST_EPOCH:
            raise LocalProtocolError(f"producer id {self.producer_id} has no epoch left behind {self.epoch}")
        self.epoch += 1
        self.established = False
        self._renumber(0)

    def _renumber(self, sequence: int) -> None:
        for send in self.sends:
            send.restamp(sequence)
            sequence = advance(sequence, send.records)
        self.next_sequence = sequence

    def _settle(self, send: Send) -> None:
        send.settled = True
        if send.fate is Fate.WRITTEN and send is not self.sends[0]:
            for earlier in takewhile(lambda other: other is not send, self.sends):
                earlier.overtaken = True
        self.sends.remove(send)


class Lane:
    """One producer id under lease; its tracks by (topic, partition)."""

    __slots__ = ("epoch", "producer_id", "tracks")

    def __init__(self, producer_id: int, epoch: int = 0) -> None:
        """Takes a producer id as kproxy assigns it (bit 62 set) and the epoch at which new tracks begin."""
        self.producer_id = producer_id
        self.epoch = epoch
        self.tracks: dict[TrackKey, Track] = {}

    def track(self, key: TrackKey) -> Track:
        """The track of a partition, made when first asked for."""
        found = self.tracks.get(key)
        if found is None:
            found = self.tracks[key] = Track(key, self.producer_id, self.epoch)
        return found

    def forget_unused(self, track: Track) -> bool:
        """Drops a track under which nothing was written, so that made-up topics cost no memory; False if it is used."""
        unused = not (track.sends or track.established or track.next_sequence) and track.epoch == self.epoch
        if unused:
            self.tracks.pop(track.key, None)
        return unused

    def unsettled(self) -> list[Track]:
        """The tracks with batches whose fate is not definite."""
        return [track for track in self.tracks.values() if track.sends]

    def next_epoch(self) -> int:
        """The first epoch that no track of this lane has used."""
        return max((track.epoch for track in self.tracks.values()), default=self.epoch) + 1


class LanePool:
    """The lanes that no connection holds. Each lease has its own epoch, so late copies of an earlier one are fenced."""

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
        return Lane(broker_producer_id | KPROXY_BIT)

    def give_back(self, lane: Lane) -> None:
        """Ends a lease. A lane with something unsettled, or with too few epochs left, is not used again."""
        self.leased -= 1
        epoch = lane.next_epoch()
        if not lane.unsettled() and epoch <= LAST_LEASED_EPOCH:
            self._free.append(Lane(lane.producer_id, epoch))
