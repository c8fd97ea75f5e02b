"""Kept producers, by producer id and partition: for what they have a success, and what is in flight."""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto
from struct import Struct
from typing import Final, NamedTuple

from kproxy.codec.sequence import SEQUENCE_SPACE, advance, distance
from kproxy.dedup.kept.numbers import is_before
from kproxy.dedup.lanes import TrackKey

#: Partitions of producers that are remembered, about 500 bytes each. Of others, brokers say what has to be known.
MOST_PARTITIONS: Final = 100_000
_FAR: Final = SEQUENCE_SPACE // 4
#: Refused batches that are remembered: more than an idempotent client has in flight.
MOST_REFUSED: Final = 8
#: Produce requests that an idempotent client has in flight over one connection at most (KIP-98).
MOST_IN_FLIGHT: Final = 5
#: First sequence and offset of a batch.
_PLACE: Final = Struct(">iq")
#: A client has a success for all but so many of its last batches: as many as are in flight, and those that it sent
#: while it repeated the first of these.
MOST_REPEATED: Final = 2 * MOST_IN_FLIGHT
#: Bytes of those that stay when another one is added.
_KEPT_PLACES: Final = (MOST_REPEATED - 1) * _PLACE.size


class Arrival(Enum):
    """The decision about a batch of a kept producer that has just come."""

    #: It is sent.
    SENT = auto()
    #: Its client had left it out, and others follow it already.
    LATE = auto()
    #: One before it was refused, and a broker that knows nothing of the producer would take this one first.
    EARLY = auto()
    #: Its client has raised its epoch since.
    OLD = auto()


class Missing(NamedTuple):
    """Acknowledged records that are not in the log any more: as ``Loss`` has them."""

    records: int
    end: int
    start: int = -1


@dataclass(slots=True, eq=False)
class Flow:
    """The Produce requests that have come over one connection, whose responses have their order."""

    requests: int = 0


@dataclass(slots=True, eq=False)
class KeptPartition:
    """One partition of a kept producer."""

    #: The newest epoch of the client, and its first sequence that counts: what is before was left out by the client.
    epoch: int = -1
    first: int = 0
    #: The last sequence for which the client has a success, -1: none of this epoch; and the first of those before it
    #: without a gap.
    told: int = -1
    told_from: int = -1
    #: The offset after the last record for which it has a success; -1: none is known.
    told_to: int = -1
    #: The last batches of this epoch for which it has a success: first sequence and offset of each (``_PLACE``).
    places: bytes = b""
    #: The number of producer ids used before the one in use (``ids.successor``). An id is in use once a batch is in the
    #: log under it: until then the broker would take any other first, and those before it never.
    generation: int = 0
    #: The sequence of a batch that was refused because those before it are missing, -1: none was since they came; and
    #: the connection over which it came: only there its client repeats it after it has read the refusal.
    gap_at: int = -1
    gap_by: int = -1
    #: The first of the sequences that a broker has refused since the client had a success; -1: none.
    missing: int = -1
    #: The highest sequence of this epoch that was sent, and of which it is not known whether it was written; -1: none.
    doubted: int = -1
    #: The first sequences of batches that have no response, of all connections.
    open: list[int] = field(default_factory=list)
    #: The number of batches that have come; sequences that were refused since a success, and when each came last.
    arrivals: int = 0
    refused: tuple[tuple[int, int], ...] = ()
    #: The highest number of an id under which a batch was sent; it may be in flight.
    sent_under: int = 0
    #: Since the client has raised its epoch no batch was written under it: what it sends may be in the log under an
    #: earlier epoch, at this offset or later. -1: it is not.
    older_from: int = -1
    #: Batches of earlier epochs may still arrive at a broker, also those that another instance has sent.
    older_arrive: bool = False
    #: Those that were written before the id with this number was used (``generation``) do not: they are fenced off.
    fenced: int = -1
    #: The connection over which the request came that had the last success, and the number of that request; None: it
    #: says nothing of what the client has received.
    told_by: Flow | None = None
    told_nth: int = 0
    #: Nothing that the client may send again is before this offset: it has a success for all that is.
    floor: int = 0
    #: Batches of this epoch that were refused since the broker has a newer one: first sequences and connections.
    outdated: tuple[tuple[int, int], ...] = ()

    def sends(self, epoch: int, sequence: int, connection: int) -> Arrival:
        """Records that a batch comes over a connection (its serial number).

        A broker takes the first batch of a producer that it does not know at any sequence. So until one is in the log,
        none is sent that follows one which was refused; unless its client repeats it, and not that one.
        """
        if self.has_left(epoch):
            return Arrival.OLD
        if epoch > self.epoch:
            self._raises(epoch)
            self.epoch, self.told, self.gap_at, self.first, self.missing = epoch, -1, -1, 0, -1
            self.refused, self.doubted, self.places, self.outdated = (), -1, b"", ()
        else:
            if self.first and is_before(sequence, self.first):
                return Arrival.LATE
            if self.gap_at >= 0 and is_before(sequence, self.gap_at):
                self.gap_at = -1
            if self.told < 0 and self.missing >= 0 and is_before(self.missing, sequence):
                if not self.insists(sequence, connection):
                    self.gap_at, self.gap_by = sequence, connection
                    return Arrival.EARLY
                self.first, self.missing = sequence, -1
        self.open.append(sequence)
        self.arrivals += 1
        return Arrival.SENT

    def _raises(self, epoch: int) -> None:
        """Records that the client has a newer epoch.

        A client has a success for all but the last batches that it sent. An epoch above 0 that is the first to be seen
        follows others, of which nothing is known.
        """
        if (self.epoch < 0 and not epoch) or self.is_received:
            return
        if len(self.places) > _KEPT_PLACES:
            self.floor = _PLACE.unpack_from(self.places)[1]
        is_known = self.epoch >= 0 and self.told_by is not None
        self.older_arrive = self.older_arrive or bool(self.open) or self.doubted >= 0 or not is_known
        self.older_from, self.fenced = self._first_older(), -1

    def _first_older(self) -> int:
        """The offset from which on the client may send records again: it may not have received the last responses."""
        return self.floor

    def has_left(self, epoch: int) -> bool:
        """Whether the client has raised its epoch since: it wants no more of the batches of this one."""
        return epoch < self.epoch

    def finds(self, epoch: int, end: int) -> None:
        """Records that the client has a success for a batch that was found under earlier epochs, up to an offset."""
        if epoch == self.epoch and self.older_from >= 0:
            self.older_from = max(self.older_from, end)

    def fences(self, epoch: int, generation: int) -> None:
        """Records that what was in flight before an epoch, under the id with this number, cannot arrive any more."""
        if epoch == self.epoch:
            self.fenced = generation

    def begins(self, epoch: int) -> None:
        """Records that a batch is written under an epoch: if that is the newest, no earlier one is sent again."""
        if epoch == self.epoch:
            self.older_from, self.older_arrive = -1, False

    @property
    def is_unfenced(self) -> bool:
        """Whether a batch of an earlier epoch may still arrive under the id in use."""
        return self.older_from >= 0 and self.older_arrive and self.fenced < self.generation

    def may_be_older(self, epoch: int) -> bool:
        """Whether a batch that comes now may be in the log under an earlier epoch."""
        if epoch == self.epoch:
            return self.older_from >= 0
        return epoch > max(self.epoch, 0) and not self.is_received

    @property
    def is_received(self) -> bool:
        """Whether the client surely has received a success for all that was sent of its batches.

        Of its requests so many are in flight at most. So where as many have come after one, over the same connection,
        the client has read the response to that.
        """
        if self.told < 0 or self.older_from >= 0 or self.open or self.doubted >= 0 or self.told_by is None:
            return False
        return self.told_by.requests - self.told_nth >= MOST_IN_FLIGHT

    def answers(self, epoch: int, flow: Flow | None, nth: int) -> None:
        """Records that a request over a connection had a success, the ``nth`` one that came there."""
        if epoch == self.epoch:
            self.told_by, self.told_nth = flow, nth

    def is_repeated(self, epoch: int, sequence: int) -> bool:
        """Whether a batch may be in the log: it is in flight, or it was sent, and no response has excluded that."""
        if epoch != self.epoch:
            return False
        is_told = self.told >= 0 and not is_before(self.told, sequence)
        return is_told or self.is_doubted(epoch, sequence) or sequence in self.open

    def is_preceded(self, sequence: int) -> bool:
        """Whether a batch that is before a sequence has come, and had no success."""
        return any(is_before(one, sequence) for one in (*self.open, *(refused for refused, _ in self.refused)))

    def is_doubted(self, epoch: int, sequence: int) -> bool:
        """Whether a batch was sent, and nobody knows whether it was written."""
        return epoch == self.epoch and self.doubted >= 0 and not is_before(self.doubted, sequence)

    def doubts(self, epoch: int, sequence: int) -> None:
        """Records that a batch was sent, and that nobody knows whether it was, or will be, written."""
        if epoch == self.epoch and (self.doubted < 0 or is_before(self.doubted, sequence)):
            self.doubted = sequence

    def place(self, sequence: int) -> int:
        """Return the offset of a batch for which the client has had a success lately; -1: unknown."""
        known: dict[int, int] = dict(_PLACE.iter_unpack(self.places))
        return known.get(sequence, -1)

    @property
    def last_record(self) -> int:
        """The sequence of the record before ``told_to``, -1: it is not known to be one of this epoch."""
        places, end = _PLACE.iter_unpack(self.places), self.told_to - 1
        is_there = any(offset + distance(sequence, self.told) == end for sequence, offset in places)
        return self.told if is_there else -1

    def _moves(self, sequence: int, offset: int, *, is_new: bool) -> None:
        """Records the offset of a batch; -1: it is not there as a whole, or under an earlier epoch."""
        others = self.places
        if not is_new:
            others = b"".join(_PLACE.pack(*one) for one in _PLACE.iter_unpack(others) if one[0] != sequence)
        new = _PLACE.pack(sequence, offset) if offset >= 0 else b""
        self.places = others[-_KEPT_PLACES:] + new

    def is_followed(self, sequence: int, arrival: int) -> bool:
        """Whether one before a batch came after it, and was refused: its client reads that, and repeats that, later."""
        return any(is_before(one, sequence) and came > arrival for one, came in self.refused)

    def insists(self, sequence: int, connection: int) -> bool:
        """Whether a batch was refused over this connection for those before it, and none of these has come since.

        A copy over a connection that its client has left proves nothing.
        """
        return self.gap_at == sequence and self.gap_by == connection

    def is_current(self, sequence: int, connection: int) -> bool:
        """Whether the client still has the epoch of a batch, though the broker has a newer one.

        If the client has raised it at another instance, it does not repeat the batch under this one. So the batch is
        to be refused once, and is current if the client repeats it over the same connection.
        """
        one = sequence, connection
        if one in self.outdated:
            return True
        self.outdated = (*self.outdated, one)[-MOST_REFUSED:]
        return False

    def ends(self, sequence: int, *, refused: bool = False, arrival: int = 0) -> None:
        """Records that a batch has its response, or will have none.

        ``refused``: it is not known to be written; ``arrival``: ``arrivals`` when it had come.
        """
        if refused:
            others = [one for one in self.refused if is_before(one[0], sequence) or one[1] > arrival]
            self.refused = (*others, (sequence, arrival))[-MOST_REFUSED:]
        if sequence in self.open:
            self.open.remove(sequence)
        if refused and self.gap_at >= 0 and is_before(sequence, self.gap_at):
            self.gap_at = -1  # its client has not had this response yet, and repeats it
        if refused and self.told < 0 and (self.missing < 0 or is_before(sequence, self.missing)):
            self.missing = sequence

    def written(
        self, epoch: int, sequence: int, records: int, base_offset: int, *, is_found: bool = False
    ) -> Missing | None:
        """Records that the client receives a success for a batch; the acknowledged records that turn out to be missing.

        An offset below the end of what was written before shows that the log was cut, or made again; unless the batch
        was found there under an earlier epoch (``is_found``).
        """
        gone = None
        if not is_found and 0 <= base_offset < self.told_to and not self._knows(epoch, sequence):
            gone = Missing(self.told_to - base_offset, self.told_to, base_offset)
            self.told_to, self.places = -1, b""
        if base_offset >= 0:
            self.told_to = max(self.told_to, base_offset + records)
        if not (self.floor or epoch or sequence):
            self.floor = max(base_offset, 0)  # its first batch
        last = advance(sequence, records - 1)
        if epoch != self.epoch:
            return gone
        if self.told_from == advance(last, 1) and self.told >= 0:
            self.told_from = sequence
        is_next = self.told >= 0 and sequence == advance(self.told, 1)
        if is_next or self.place(sequence) != base_offset:
            self._moves(sequence, -1 if is_found else base_offset, is_new=is_next)
        self.missing = -1
        self._settles(last)
        if is_next or self.told < 0 or is_before(self.told, last):
            if not is_next:
                self.told_from = sequence
            self.told = last
            if self.first and distance(self.first, last) >= _FAR:
                self.first = 0  # else what is new would count as older, half of all sequences later
        return gone

    def _settles(self, last: int) -> None:
        """Forgets what is known of batches up to a sequence that is written."""
        if self.outdated:
            self.outdated = tuple(one for one in self.outdated if is_before(last, one[0]))
        if self.refused:
            self.refused = tuple(one for one in self.refused if is_before(last, one[0]))
        if self.doubted >= 0 and not is_before(last, self.doubted):
            self.doubted = -1

    def was_told(self, epoch: int, sequence: int) -> bool:
        """Whether the client has a success for the record of a sequence."""
        if epoch != self.epoch or self.told < 0:
            return False
        return not (is_before(self.told, sequence) or is_before(sequence, self.told_from))

    def _knows(self, epoch: int, sequence: int) -> bool:
        """Whether the client had a success for a batch before."""
        return epoch < self.epoch or (self.told >= 0 and not is_before(self.told, sequence))

    def lost_from(self, last: int) -> Missing:
        """Records that only what is up to ``last`` (a sequence; -1: nothing) is left; the records that are missing."""
        gone = Missing(distance(last, self.told) if last >= 0 else self.told + 1, self.told_to)
        self.told, self.told_to, self.places = last, -1, b""
        return gone


class KeptProducers:
    """The kept producers of a process, those used last at the end."""

    def __init__(self, most: int = MOST_PARTITIONS) -> None:
        """``most``: partitions of producers that are remembered."""
        self._most = most
        self._count = 0
        self._producers: OrderedDict[int, dict[TrackKey, KeptPartition]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of partitions of producers."""
        return self._count

    def known(self, producer_id: int, key: TrackKey) -> KeptPartition | None:
        """Return a producer's state on a partition, if something is known."""
        producer = self._producers.get(producer_id)
        return producer.get(key) if producer is not None else None

    def partition(self, producer_id: int, key: TrackKey) -> KeptPartition:
        """Return a producer's state on a partition, a new one if nothing is known."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = {}
        found = producer.get(key)
        if found is None:
            found = producer[key] = KeptPartition()
            self._count += 1
            self._producers.move_to_end(producer_id)
            self._forget()
        return found

    def _forget(self) -> None:
        """Forgets the producers that were new the longest ago, and have no batch in flight."""
        looks = len(self._producers) - 1  # not the one at hand
        while self._count > self._most and looks:
            looks -= 1
            producer_id, producer = next(iter(self._producers.items()))
            self._producers.move_to_end(producer_id)
            if not any(partition.open for partition in producer.values()):
                del self._producers[producer_id]
                self._count -= len(producer)
