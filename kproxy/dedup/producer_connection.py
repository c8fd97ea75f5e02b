"""One client connection of a producer: which responses it is owed, and which requests it may still retry."""

from bisect import insort
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from kproxy.dedup.digest import Digest
from kproxy.dedup.lanes import Lane, Send, TrackKey
from kproxy.dedup.origin import NO_SILENCE, Origin, Silence
from kproxy.dedup.unconfirmed import BY_AGE, PendingProduce, Stamp, UnconfirmedBatch, Wire

if TYPE_CHECKING:
    from kproxy.dedup.retry_ledger import RetryLedger


@dataclass(frozen=True, slots=True)
class Suspect:
    """A lane of which copies may still be in flight: fence it on a partition, then search the log for its batches."""

    producer_id: int
    first_epoch: int
    last_epoch: int
    #: Of a lane of this process: the (epoch, sequence) of the open batches; None: whatever the tail holds.
    only: frozenset[tuple[int, int]] | None = None
    #: Of another instance.
    elsewhere: bool = False
    #: It was given back: the outcome of each batch is known, so it needs no fence.
    returned: bool = False
    #: When the other instance leased it or gave it back, in seconds since the epoch.
    recorded_at: float = 0.0
    #: It is known which of its batches a client may send again (``LaneRecord.says_all``).
    says_all: bool = False
    #: Its connection and one of this instance are in use at the same time: it is read, and never fenced.
    shared: bool = False

    @property
    def in_use_until(self) -> float:
        """The time when the other instance gave it back, in seconds since the epoch."""
        return self.recorded_at if self.returned else inf

    @property
    def fence_epoch(self) -> int:
        """The epoch of the marker: above all that the lane may have used."""
        return self.last_epoch + 1

    def wrote(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether a batch in the log is one to look for."""
        if producer_id != self.producer_id or not self.first_epoch <= epoch <= self.last_epoch:
            return False
        return self.only is None or (epoch, sequence) in self.only


#: About how many bytes a request takes until its response is received, and each partition in it.
_REQUEST_BYTES: Final = 600
_PARTITION_BYTES: Final = 400
#: Requests of one connection take no more, beyond those that a client usually has in flight. Where they would, a
#: written response counts as arrived, and a client as one of usual depth.
_MOST_BYTES: Final = 1 << 20
#: Fewer requests need not be counted.
_FEW: Final = 16
#: After so many requests the kernel is asked at the latest.
_LOOKS: Final = 32
#: Batches that came over newer connections that are compared with what lies untaken. A client repeats what it had in
#: flight first.
_MOST_OVERTOOK = 2000
#: And bytes of memory that they take.
_MOST_OVERTOOK_BYTES = 2 << 20
#: Times at which requests were untaken that are remembered: more are of a client that sends a few bytes at a time.
_MOST_MARKS: Final = 64


class ProducerConnection:
    """A connection of a producer. ``arrived`` and ``closed`` report requests in order; ``end`` reports its end."""

    def __init__(self, ledger: "RetryLedger", wire: Wire, since: float, origin: Origin) -> None:
        """Use ``RetryLedgers.join``."""
        self.ledger = ledger
        self.wire = wire
        #: What the records that it leaves refer to.
        self.origin = origin
        origin.opened_at = since
        #: Tells connections of a producer apart.
        self.number = ledger.outside.next_serial()
        #: By partition: what was accepted before this and not repeated, it has given up (``PendingProduce.serial``).
        self.passed: dict[TrackKey, int] = {}
        #: By partition, the last request that had a new record for it (``PendingProduce.serial``).
        self.went_on: dict[TrackKey, int] = {}
        #: The partitions for which one was refused unsent since then: it may have repeated what is unconfirmed.
        self.refused: set[TrackKey] = set()
        self.last_serial = 0
        #: Unconfirmed on this very connection: its response was late, or had an error of another partition.
        self.kept: dict[TrackKey, list[UnconfirmedBatch]] = {}
        #: What came over newer connections while this one owed a response: of what lies untaken here it may be a retry.
        self.overtook: dict[TrackKey, list[UnconfirmedBatch]] = {}
        self._overtook_count = self._overtook_bytes = 0
        self._number = 0
        #: Requests without a response; with one that may not have arrived; with one that may not have been read.
        self._asked: deque[PendingProduce] = deque()
        self._written: deque[PendingProduce] = deque()
        self._unread: deque[PendingProduce] = deque()
        #: Those that were read if the program ran in its last silence, and did not stand still.
        self._likely_read: list[PendingProduce] = []
        #: The partitions of the last ones, each as often as it is named.
        self._partitions = 0
        #: The request with which the kernel is asked next which responses have arrived.
        self._look_with = 0
        #: ``Rules.most_unread``, as of the last look; and what was known of the client's silences.
        self._most_unread, self._silence = 1, NO_SILENCE
        #: Of the responses that had arrived by some time, how many bytes of requests had when a second had passed; -1:
        #: it has not.
        self._counted = since, -1
        #: The depth of the producer then.
        self._depth = 0
        self._left_open: dict[PendingProduce, None] = {}
        #: The partitions of a request that waits to be accepted, and its place among all that arrived.
        self._waiting: tuple[int, Collection[TrackKey]] | None = None
        #: Whether the next request waits for what another connection brought before.
        self.is_behind = False
        #: The partitions for which it is known whether the client had left an older connection for this one.
        self.sees_older: set[TrackKey] = set()
        #: What it left, if another connection has shown that its client has left it, and its end was not seen yet.
        self.unseen: list[UnconfirmedBatch] | None = None
        #: Whether other instances' leases were read after its end.
        self.has_looked_elsewhere = False
        #: Since when a request waits that its client may have sent again over a newer connection (s); inf: none did.
        self.outrun_at = inf
        #: ``Origin.asked_at`` of that request.
        self.outrun_asked_at = 0.0
        #: Since when the request at hand looks whether an older connection was left (s); inf: it does not.
        self.looks_since = inf
        #: By connection whose requests it waits for: up to which byte (``Wire.arrived``).
        self._behind: dict[ProducerConnection, int] = {}
        #: Up to which byte requests had arrived here, untaken, when another connection's began to wait or was refused,
        #: and when that was (``Outside.next_serial``).
        self._marks: deque[tuple[int, int]] = deque()

    @property
    def ended(self) -> bool:
        """Whether the client has closed it."""
        return self.origin.ended

    @property
    def since(self) -> float:
        """The time when it was opened, in seconds."""
        return self.origin.opened_at

    @property
    def node_id(self) -> int:
        """The broker that its requests go to; -1 if there is none yet."""
        return self.origin.node_id

    # -- while it lives

    @property
    def keeps_order(self) -> bool:
        """Whether its client repeats what was refused before it sends anything else."""
        return self.ledger.rules.keeps_order(self.origin.software.name)

    def moved(self, node_id: int) -> None:
        """Records the broker that its requests go to from now on."""
        if not self.ended:
            self.ledger.moved(self, node_id)

    def waits(self, keys: Collection[TrackKey]) -> None:
        """Records that the next request can't be accepted yet; may be called again while it waits."""
        if self._waiting is None:
            self.ledger.mark_earlier(self, keys)
            self._waiting = self.ledger.outside.next_serial(), keys
            self.ledger.mark_later(self)
            self.ledger.waited_for(self, keys)

    @property
    def is_waiting(self) -> bool:
        """Whether the next request can't be accepted yet."""
        return self._waiting is not None

    def waits_with(self, key: TrackKey) -> bool:
        """Whether the next request is for a partition, and can't be accepted yet."""
        return self._waiting is not None and key in self._waiting[1]

    @property
    def own(self) -> tuple[dict[TrackKey, list[UnconfirmedBatch]], ...]:
        """The entries that only this connection may repeat."""
        return self.kept, self.overtook

    @property
    def owes(self) -> bool:
        """Whether a request waits or has no response yet: what its client sent after it may lie untaken."""
        return self._waiting is not None or (bool(self._asked) and not self._asked[-1].position)

    def is_overtaken(self, entries: Iterable[UnconfirmedBatch]) -> None:
        """Takes what came over a newer connection, while this one ``owes`` something."""
        if not self.overtook:
            self._overtook_count = self._overtook_bytes = 0
        elif self._has_enough:
            return  # to make one more entry would cost as much as to keep it
        for entry in entries:
            self._overtook_count += 1
            self._overtook_bytes += entry.size
            if self._has_enough:
                return
            self.ledger.outside.grew(entry.size)
            entry.may_be_second = entry.timed_only = True
            self.overtook.setdefault(entry.key, []).append(entry)
            self.ledger.is_overtaken(self, entry.key)

    @property
    def _has_enough(self) -> bool:
        """Whether more came over newer connections than is kept."""
        return self._overtook_count > _MOST_OVERTOOK or self._overtook_bytes > _MOST_OVERTOOK_BYTES

    def waited_at(self, serial: int) -> bool:
        """Whether the next request waited at that time (``Outside.next_serial``)."""
        return self._waiting is not None and self._waiting[0] < serial

    def waits_no_more(self) -> None:
        """Records that the request was accepted, or answered without being accepted."""
        self._waiting = None
        self.looks_since = inf
        self._behind.clear()
        self.is_behind = False
        self.ledger.release()

    @property
    def sent_at(self) -> int:
        """The place of the request at hand among all of the producer (``Outside.next_serial``), when it was sent.

        What was there untaken when another connection's request began to wait, or was refused, was sent before that.
        """
        sent = self.ledger.outside.next_serial() if self._waiting is None else self._waiting[0]
        if self._marks:
            self._forget_marks()
        return min(sent, self._marks[0][1]) if self._marks else sent

    def mark_untaken(self) -> None:
        """Records that a request arrived over another connection after those that are untaken here."""
        self._forget_marks()
        position = self.wire.arrived()
        if self.wire.has_taken(position) or (self._marks and self._marks[-1][0] >= position):
            return
        if len(self._marks) == _MOST_MARKS:
            self._marks.pop()
        self._marks.append((position, self.ledger.outside.next_serial()))

    def _forget_marks(self) -> None:
        while self._marks and self.wire.has_taken(self._marks[0][0]):
            self._marks.popleft()

    def precedes(self, key: TrackKey, other: "ProducerConnection") -> bool:
        """Whether it has a batch for a partition that its client sent before what another connection waits with."""
        if self.has_open(key):
            return True
        mine = self._waiting
        if mine is None or key not in mine[1] or other in self._behind:
            return False
        return self.sent_at < other.sent_at

    def has_open(self, key: TrackKey) -> bool:
        """Whether a batch of it for a partition has no outcome yet."""
        return any(not answer.closed and key in answer.keys for answer in self._asked)

    def waits_for(self, other: "ProducerConnection") -> bool:
        """Whether the request at hand began to wait for what another connection had untaken."""
        return other in self._behind

    def may_precede(self, other: "ProducerConnection") -> bool:
        """Whether it has requests untaken that were there when another connection began to wait for them.

        Of two that wait for each other the one whose request was sent first comes first.
        """
        position = other._behind.get(self)
        if position is None:
            position = self.wire.arrived()
        if self.wire.has_taken(position):
            return False
        if self.is_behind and self.is_waiting and other.is_waiting and other.sent_at < self.sent_at:
            return False
        if self not in other._behind:
            other._behind[self] = position
            if other in self._behind:
                self.ledger.outside.changed()  # of two that wait for each other one need not any more
        self.wire.tell_taken(self.ledger.outside.changed)
        return True

    def arrived(self, answer: PendingProduce, now: float) -> None:
        """Records a request that was accepted at ``now`` (seconds since the epoch) and will be answered."""
        answer.sent_at = self.sent_at
        answer.serial = self.last_serial = self.ledger.outside.next_serial()
        for entry in answer.moved:
            entry.serial = answer.serial
        origin = self.origin
        if origin.ended:
            self._leave_open(answer)
            return
        origin.used_at = now
        if not self._number:
            origin.first_at = answer.received_at
        self._number += 1
        self.ledger.requests += 1
        self._asked.append(answer)
        if len(self._asked) > self.ledger.depth:
            self._look_at_depth()

    def _look_at_depth(self) -> None:
        waiting = sum(not answer.at and not answer.given_up for answer in self._asked)
        self.pipelined(waiting)

    def pipelined(self, requests: int) -> None:
        """Records how many requests arrived before a response was written."""
        if requests > self.ledger.depth:
            self.ledger.depth, self._look_with = requests, 0

    def review(self, now: float, silence: Silence = NO_SILENCE, empty_at: float = 0.0) -> None:
        """Checks which responses the client has surely received, since another request has arrived.

        ``silence``: the last time of a second or more in which the client sent nothing, before that request;
        ``empty_at``: when nothing of that request was there yet (s).
        """
        number, asked, unread = self._number + 1, self._asked, self._unread
        self.origin.asked_at = empty_at
        if self.ledger.waits:
            self._give_up_open()
        if asked and asked[0].position:
            self._note_written(now)
        if number >= self._look_with and self._written:
            self.look(now)
        # what the rules say, first by comparisons: this is on the way of every request
        if self._likely_read and self.ledger.rules.has_had_time(self._silence.until, now):
            self._forget_likely_read()
        if unread and (unread[0].arrived_with + self._most_unread <= number or silence is not self._silence):
            self._silence = silence
            self._release(number, silence)

    def _note_written(self, now: float) -> None:
        """Passes on the requests whose responses the kernel has taken, or that come too late."""
        asked, rules, written = self._asked, self.ledger.rules, self.wire.written
        while asked:
            answer = asked[0]
            position = answer.position
            if not position:
                break
            late = rules.is_too_late(answer, now)
            if not (position <= written or answer.failed or late):
                break
            asked.popleft()
            if answer.given_up:
                continue  # all connections of the producer know of it
            if late or (answer.failed and rules.may_repeat(answer)):
                self._keep(answer, late=late)
            else:
                self._written.append(answer)

    def look_between(self, now: float) -> bool:
        """Checks between requests which responses have arrived; returns whether some may not have been read."""
        if self._asked:
            self._note_written(now)
        if self._written:
            self.look(now, has_asked=False)
        return bool(self._unread)

    def look(self, now: float, *, has_asked: bool = True) -> None:
        """Asks the kernel which responses have arrived at the client.

        ``has_asked``: another request is there. A question for each request would cost much of what a request costs; a
        late one only takes longer to confirm.
        """
        ledger, written, unread, number = self.ledger, self._written, self._unread, self._number + 1
        rules, waits = ledger.rules, ledger.waits and has_asked
        is_full = len(written) + len(unread) >= _FEW and self._is_full()
        if is_full:
            self._most_unread, self._depth = rules.depth(ledger.depth), 0
            self._forget_likely_read()
        elif self._depth != ledger.depth:
            self._depth = ledger.depth
            self._most_unread = rules.most_unread(ledger.depth, self.origin.software.name)
        self._look_with = number + min(self._most_unread, _LOOKS)
        if not written:
            return
        # a client that waits sends no request before it has read what was written
        acknowledged = self.wire.written if waits else self.wire.written - self.wire.unacked()
        self._note_arrived(acknowledged, now, number, anyway=waits or is_full)
        while unread and rules.received_by_time(unread[0], now, acknowledged):
            self._partitions -= len(unread.popleft().places)
        if self._most_unread > _LOOKS:
            self._count_bytes(now)

    def _count_bytes(self, now: float) -> None:
        """Forgets, of a client of unknown depth, requests whose responses it has received by the bytes that it sent.

        Otherwise a thousand large requests would have to be read back from the log when the connection breaks.
        """
        unread, rules, received = self._unread, self.ledger.rules, self.wire.received
        arrived_by, counted_from = self._counted
        if counted_from < 0:
            if unread and rules.has_had_time(arrived_by, now):
                self._counted = arrived_by, received
        elif rules.received_by_bytes(received - counted_from):
            while unread and unread[0].arrived_at <= arrived_by:
                self._partitions -= len(unread.popleft().places)
            self._counted = now, -1

    def _is_full(self) -> bool:
        """Whether so much is kept that no more may be."""
        kept = len(self._unread) + len(self._written) + len(self._likely_read)
        partitions = self._partitions + sum([len(answer.places) for answer in self._written])
        return kept * _REQUEST_BYTES + partitions * _PARTITION_BYTES > _MOST_BYTES

    def _note_arrived(self, acknowledged: int, now: float, number: int, *, anyway: bool) -> None:
        """Passes on the requests whose responses have arrived; ``anyway``: or are taken for such."""
        written, unread, rules, origin = self._written, self._unread, self.ledger.rules, self.origin
        partitions, is_direct = 0, origin.is_direct
        # of a connection in use this was asked so often that it can't have arrived long before
        while not anyway and written and rules.is_too_late(written[0], now):
            self._keep(written.popleft(), late=True)
        if not written:
            return
        # responses arrive in order: most often all of them have
        arrived = not anyway and rules.has_arrived(written[-1], acknowledged, now, is_direct=is_direct)
        heard_at = 0.0
        while written:
            answer = written[0]
            if not (arrived or anyway or rules.has_arrived(answer, acknowledged, now, is_direct=is_direct)):
                break
            heard_at = answer.at
            answer.arrived_with, answer.arrived_at = number, now
            partitions += len(answer.places)
            unread.append(written.popleft())
        self._partitions += partitions
        if not anyway:
            self._heard(heard_at)

    def hear(self) -> int:
        """Asks the kernel which response arrived last, for ``Origin.heard_at``; returns the acknowledged bytes."""
        acknowledged = self.wire.written - self.wire.unacked()
        for answer in chain(reversed(self._asked), reversed(self._written), reversed(self._unread)):
            if 0 < answer.position <= acknowledged:
                self._heard(answer.at)
                break
        return acknowledged

    def _heard(self, at: float) -> None:
        """Notes that a response which was given then (s) has been acknowledged, and so that the client was there.

        Not if it may have ended the connection since: what ended TCP between still acknowledges. Only of several
        connections it is ever asked which were in use at the same time.
        """
        if at > self.origin.heard_at and len(self.ledger.members) > 1 and not self.wire.may_have_ended():
            self.origin.heard_at = at

    def _release(self, number: int, silence: Silence) -> None:
        """Forgets the requests whose responses were received, as request ``number`` shows."""
        unread, rules, most = self._unread, self.ledger.rules, self._most_unread
        while unread:
            answer = unread[0]
            if rules.received_by_requests(answer, number, most):
                self._partitions -= len(answer.places)
            elif rules.likely_read_in_silence(answer, silence):
                self._likely_read.append(answer)
            else:
                break
            unread.popleft()

    def _forget_likely_read(self) -> None:
        self._partitions -= sum([len(answer.places) for answer in self._likely_read])
        self._likely_read.clear()

    def _give_up_open(self) -> None:
        for answer in self._asked:
            if not (answer.closed or answer.given_up):
                self._give_up(answer)

    def timed_out(self, answer: PendingProduce, told: Collection[TrackKey] = ()) -> None:
        """Records that a request is answered with an error while kproxy keeps sending its batches.

        ``told``: the partitions whose success is in that response.
        """
        answer.timed_out = answer.failed = True
        answer.told = told
        self._give_up(answer)

    def _give_up(self, answer: PendingProduce) -> None:
        # another connection may bring its retry, if the client looks for the partition's leader elsewhere
        answer.given_up = True
        self._leave_open(answer)

    def refused_unsent(self, key: TrackKey, records: Sequence[Digest], received_at: float, now: float) -> None:
        """Records that a request that was read by ``received_at`` was refused unsent.

        If it can't have been a retry, its own retry is none of an equal request before it.
        """
        before = self.owed(key)
        if (
            records
            and before
            and all(self.ledger.rules.sent_too_soon(answer.repeated_from, received_at) for answer in before)
            and self.ledger.repeats_none(self, key, received_at)
        ):
            entry = UnconfirmedBatch.unwritten(key, self.ledger.outside.next_serial(), records, now)
            self._leave([entry])  # the error may send its client to another broker

    def repeated(self) -> Iterator[tuple[UnconfirmedBatch, PendingProduce]]:
        """Unconfirmed batches that were repeated, with the request whose response the client may not have received."""
        for answer in (*self._unread, *self._written, *self._asked):
            for entry in answer.moved:
                yield entry, answer

    def cut(self, key: TrackKey, offset: int) -> None:
        """Notes that what was acknowledged with this offset or later is lost, before it may become an entry."""
        for answer in (*self._likely_read, *self._unread, *self._written, *self._asked):
            for send in answer.sends:
                if send.noted and send.key == key and send.base_offset >= offset:
                    send.lost = True
            if answer.moved:
                answer.moved = [one for one in answer.moved if one.key != key or one.stamp.base_offset < offset]

    def owed(self, key: TrackKey) -> list[PendingProduce]:
        """The requests for a partition whose response the client may not have received."""
        return [answer for answer in (*self._unread, *self._written, *self._asked) if key in answer.keys]

    def unheard(self, keys: Collection[TrackKey], asker: "ProducerConnection", now: float) -> list[tuple[bool, float]]:
        """The requests for these partitions whose response the client's kernel may not have, at ``now`` (s).

        Only those that were sent before the request of ``asker`` waited. Of each: whether its outcome is known, and
        when its response was given (s; 0: it was not).
        """
        asked = [
            answer
            for answer in (*self._asked, *self._written)
            if not (answer.given_up or asker.waited_at(answer.sent_at) or answer.keys.isdisjoint(keys))
        ]
        kept = [entry for key in keys for entry in self.kept.get(key, ())]
        if not (asked or kept):
            return []
        acknowledged = self.hear()
        unheard = (one for one in asked if not 0 < one.position <= acknowledged)
        found = [(one.closed, one.at if one.position else 0.0) for one in unheard]
        # acknowledged or not, its client sends these again, and has not yet
        read_at = self.ledger.rules.read_by
        asked_at = inf if self.is_waiting else self.origin.asked_at
        return found + [(True, read_at(entry.since)) for entry in kept if asked_at <= read_at(entry.since)]

    def leave(self, now: float) -> None:
        """Records that the client has left the connection, as another one of it shows: the end was not seen.

        The client may have read what is not acknowledged: until the end is seen only equal timestamps show a retry.
        """
        self.end(now, unseen=[])

    def closed(self, answer: PendingProduce, now: float) -> None:
        """Records that the outcome of each batch of a request is known."""
        answer.closed = True
        self.ledger.overtakes(self, answer, now)
        self.ledger.release()
        if self.origin.ended or answer.given_up:
            self._not_received(answer, now)

    def _keep(self, answer: PendingProduce, *, late: bool) -> None:
        rules = self.ledger.rules
        for entry in _entries(answer, sure=False, since=answer.at):
            entry.beside = frozenset() if late else frozenset(answer.failures)
            entry.origin, entry.late_here = self.origin, late and not answer.failed
            entry.position = rules.telling_position(answer)
            insort(self.kept.setdefault(entry.key, []), entry, key=BY_AGE)
            self.ledger.disturb(entry.key)

    # -- at its end

    def end(self, now: float, unseen: list[UnconfirmedBatch] | None = None) -> None:
        """Records that the client has closed the connection, whether or not all its bytes have been read.

        ``unseen``: takes what it leaves, if its end was not seen.
        """
        if self.ended:
            if self.unseen is not None:
                self._see_end()
            return
        self._waiting, self.unseen = None, unseen
        rules = self.ledger.rules
        self.ledger.leaves(self)
        acknowledged = self.hear()
        self.origin.ended = True
        handed_over = self.wire.written + self.wire.writing
        closed_well = self.wire.closed_well()
        for answer in (*self._unread, *self._written, *self._asked):
            late = rules.may_repeat(answer)
            if answer.given_up:
                continue  # all connections of the producer know of it
            if not answer.closed:
                self._leave_open(answer)
            elif not answer.position:
                self._leave(self._unanswered(_entries(answer, sure=True, since=now)))
            elif late or not rules.received_by_time(answer, now, acknowledged):
                sure = rules.surely_not_received(answer, handed_over)
                position = rules.telling_position(answer)
                clean = rules.received_by_end(position, acknowledged, closed_well=closed_well)
                entries = _entries(answer, sure=sure, since=now, clean=clean)
                self._leave(self._unseen(self._unanswered(entries), position), answered=not late)
        self._leave(self._repeated_by_time_only(now, closed_well=closed_well))
        for entry in chain.from_iterable(self.kept.values()):
            entry.since, entry.beside, entry.late_here = now, frozenset(), False
            entry.clean = rules.received_by_end(entry.position, acknowledged, closed_well=closed_well)
            self._leave(self._unseen([entry], entry.position))
        for mine in (self.kept, self.overtook, self._likely_read, self._unread, self._written, self._asked):
            mine.clear()
        self.ledger.left(self)

    def _repeated_by_time_only(self, now: float, *, closed_well: bool) -> Iterator[UnconfirmedBatch]:
        if closed_well:
            return
        for entry in chain.from_iterable(_entries(answer, sure=False, since=now) for answer in self._likely_read):
            entry.timed_only = True
            yield entry

    def _unseen(self, entries: Iterable[UnconfirmedBatch], position: int) -> Iterator[UnconfirmedBatch]:
        """Batches whose response ended at ``position`` (``Rules.telling_position``): had if the end will show it."""
        for entry in entries:
            if self.unseen is not None and not (entry.sure or entry.timed_only):
                entry.timed_only, entry.position = True, position
                self.unseen.append(entry)
            yield entry

    def _see_end(self) -> None:
        """Judges what was left before the end of the connection was seen."""
        acknowledged, closed_well = self.hear(), self.wire.closed_well()
        for entry in self.unseen or ():
            clean = self.ledger.rules.received_by_end(entry.position, acknowledged, closed_well=closed_well)
            entry.clean, entry.timed_only = clean, False
            self.ledger.disturb(entry.key)
        self.unseen = None

    def _leave_open(self, answer: PendingProduce) -> None:
        self._left_open[answer] = None
        self.ledger.opened(answer, self)

    def _not_received(self, answer: PendingProduce, now: float) -> None:
        self._left_open.pop(answer, None)
        self._leave(_entries(answer, sure=True, since=now))
        self.ledger.settled(answer)

    def _unanswered(self, entries: Iterable[UnconfirmedBatch]) -> Iterator[UnconfirmedBatch]:
        """Batches without a success here. They may have had one since, if the client left this connection unseen."""
        for entry in entries:
            outrun = self.ledger.is_outrun(self, entry.key)
            entry.sure = entry.sure and not self.ledger.rules.may_be_answered_since(outrun=outrun)
            yield entry

    def _leave(self, entries: Iterable[UnconfirmedBatch], *, answered: bool = False) -> None:
        retires = self.ledger.rules.retires()
        for entry in entries:
            if retires and entry.serial < self.passed.get(entry.key, 0):
                continue
            entry.origin, entry.answered = self.origin, answered
            self.ledger.add(entry)

    def abandon(self, lane: Lane, now: float) -> None:
        """Records that nobody awaits the outcome of open batches any more: their lane has to be fenced before reuse."""
        for answer in list(self._left_open):
            unknown: dict[TrackKey, list[Send]] = {}
            for send in answer.sends:
                if not send.settled:
                    unknown.setdefault(send.track.key, []).append(send)
            for key, sends in unknown.items():
                self.ledger.suspect(key, _suspect(lane, sends), now)
            self._not_received(answer, now)

    def drained(self) -> None:
        """Records that nothing more of the connection will be read."""
        self.ledger.drained(self)


def brought_by(answer: PendingProduce, origin: Origin, since: float) -> Iterator[UnconfirmedBatch]:
    """Entries of their own of what a request has written to the log, and what it repeated.

    ``origin``: its connection's; ``since``: in seconds.
    """
    for send in answer.sends:
        if send.is_in_log:
            entry = _entry(answer, send, unheard=False, clean=False, since=since)
            entry.origin = origin
            records = None if answer.records is None else answer.records.get(send.key)
            if records and len(records) == send.records and send.log_append_time_ms < 0 <= send.base_offset:
                entry.recall(records.copy(), range(send.base_offset, send.base_offset + send.records))
            yield entry
    for moved in answer.moved:
        entry = moved.copy()
        entry.sure, entry.origin, entry.since = False, origin, since
        yield entry


def _suspect(lane: Lane, sends: Iterable[Send]) -> Suspect:
    open_sends = frozenset((send.track.epoch, send.sequence) for send in sends)
    return Suspect(lane.producer_id, lane.epoch, lane.last_epoch, open_sends)


def _entries(answer: PendingProduce, *, sure: bool, since: float, clean: bool = False) -> Iterator[UnconfirmedBatch]:
    """The entries of an answer whose batches have an outcome: those that are in the log, and those that it repeated."""
    for send in answer.sends:
        if send.is_in_log:
            unheard = sure and send.track.key not in answer.told
            entry = _entry(answer, send, unheard=unheard, clean=clean, since=since)
            entry.repeated_from = answer.repeated_from
            yield entry
    for entry in answer.moved:
        entry.sure = entry.sure and sure and entry.key not in answer.told
        entry.clean, entry.since, entry.repeated_from = clean, since, answer.repeated_from
        yield entry


def _entry(answer: PendingProduce, send: Send, *, unheard: bool, clean: bool, since: float) -> UnconfirmedBatch:
    stamp = Stamp(send.track.producer_id, send.epoch, send.sequence, send.base_offset, send.records)
    times = send.log_append_time_ms, send.taken_at
    return UnconfirmedBatch(send.track.key, stamp, answer.serial, unheard, clean, since, *times)
