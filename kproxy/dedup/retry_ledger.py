"""The batches that a producer may send again: shared by its connections, and kept for a while after their end."""

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from typing import NamedTuple, TypeAlias

from kproxy.codec.batch import BatchHeader
from kproxy.dedup.awaited_records import AwaitedRecords, Refusal
from kproxy.dedup.digest import Digest, Digests
from kproxy.dedup.entry_index import EntryIndex
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.listed import BatchPlace, InDoubt, ListedBatch
from kproxy.dedup.origin import Origin
from kproxy.dedup.producer_connection import ProducerConnection, Suspect, brought_by
from kproxy.dedup.quick_check import QuickCheck, QuickChecks
from kproxy.dedup.refused import Refused
from kproxy.dedup.retry_rules import CLOCKS_AGREE_SECONDS, Rules
from kproxy.dedup.unconfirmed import BY_AGE, PendingProduce, Stamp, UnconfirmedBatch, Wire

#: What a producer takes that has nothing but unconfirmed batches left, in bytes; measured.
LEDGER_BYTES = 4000
#: Below every epoch.
_NO_EPOCH = -1
#: Connections of one client to one broker, pools included. More belong to many programs of one name: a client of many
#: thousands would make each request that waits cost as many steps.
_MOST_OF_ONE_CLIENT = 64
#: Seconds from the first look at acknowledgements to the next; each further one takes twice as long to come, at most
#: the other number.
_LOOKS_AGAIN, _LOOKS_AT_LEAST = 0.02, 0.25
_NO_ENTRIES = EntryIndex(())


@dataclass(frozen=True, slots=True)
class Recover:
    """These lanes have to be fenced on these partitions, and what they wrote there read (``RetryLedger.recovered``)."""

    lanes: Sequence[Suspect]
    keys: Sequence[TrackKey]
    #: The connection for which it is done.
    number: int = field(default=-1, compare=False)


class FoundBatch(NamedTuple):
    """A batch that the log holds of a suspect lane, with its records."""

    key: TrackKey
    header: BatchHeader
    digests: Digests
    offsets: Sequence[int]
    #: It is among the last of its producer id, whose response was in flight when that was given up.
    is_last: bool


@dataclass(frozen=True, slots=True)
class ReadBack:
    """These entries' records have to be read from the log (``UnconfirmedBatch.recall``, or ``RetryLedger.forget``)."""

    entries: Sequence[UnconfirmedBatch]


@dataclass(frozen=True, slots=True)
class Settle:
    """Batches on these partitions must have a definite outcome first (``RetryLedgers.changed`` is called then)."""

    keys: Sequence[TrackKey]


@dataclass(frozen=True, slots=True)
class SeeEnd:
    """The end of the connection may follow the request: nothing is known before this time (s)."""

    until: float


@dataclass(frozen=True, slots=True)
class LookElsewhere:
    """Other instances' leases have to be read as they are now (``RetryLedger.looked_elsewhere``)."""


Prerequisite: TypeAlias = Recover | ReadBack | Settle | SeeEnd | LookElsewhere


@dataclass(slots=True)
class LastUse:
    """The connection of a producer that used a partition last."""

    #: When the newest connection was opened that has used it, here or at another instance, in seconds.
    newest: float
    #: Of the connection that used it last; None: that was at another instance.
    last: Origin | None = None
    #: The last request of that one whose partitions had to be looked at (``PendingProduce.serial``).
    serial: int = 0
    #: No request for it was seen between the last two looks (``RetryLedger._forget_unused``).
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Outside:
    """The functions that the ledgers of a process ask and tell."""

    #: The lanes that a former kproxy used for a producer; those that other instances have, or had within the retry
    #: window; and the producer ids of these.
    former: Callable[[Identity], Sequence[Suspect]]
    elsewhere: Callable[[Identity], Sequence[Suspect]]
    recent: Callable[[Identity], Collection[int]]
    #: By instance, what a former kproxy and the others had in doubt.
    lists: Callable[[Identity], Mapping[str, InDoubt]]
    #: Wakes who waits for an outcome.
    changed: Callable[[], None]
    #: Is given the time, and calls ``ProducerConnection.end`` of all connections that have ended.
    look_for_ends: Callable[[float], None]
    #: Orders what happens to all producers.
    next_serial: Callable[[], int]
    #: Takes by how many bytes the unconfirmed batches have grown.
    grew: Callable[[int], None]


class RetryLedger:
    """The unconfirmed batches of one producer, by partition."""

    def __init__(self, identity: Identity, rules: Rules, outside: Outside) -> None:
        """Use ``RetryLedgers.join``."""
        # below 30 attributes: with more each producer would have a dictionary of 1.2 KB for them
        self.outside = outside
        self.identity = identity
        self.rules = rules
        #: The most requests that one of its connections had without a response.
        self.depth = 1
        self.waits = rules.gave_up_open()
        #: A record of it was matched without an equal timestamp, and a warning was logged.
        self.warned = False
        #: For how many seconds an end in good order proves nothing on one of its connections (``Origin.clean_window``):
        #: what another process lists of it came the same way.
        self._clean_window = 0.0
        #: How many requests came of it.
        self.requests = 0
        #: By number, and by broker and number.
        self.members: dict[int, ProducerConnection] = {}
        self._by_broker: dict[int, dict[int, ProducerConnection]] = {}
        #: By partition, the connection whose requests need not be looked at, since nothing there can concern them.
        self._calm: dict[TrackKey, ProducerConnection] = {}
        #: For connections that were compared in full for a while, where a batch is unconfirmed.
        self._checks = QuickChecks(rules)
        #: By partition, the connection that used it last, if it has a check, with that.
        self._settled: dict[TrackKey, tuple[ProducerConnection, QuickCheck]] = {}
        #: Of connections that have ended, and of requests that were answered with an error; oldest first.
        self.entries: dict[TrackKey, list[UnconfirmedBatch]] = {}
        #: Of partitions that requests were compared with since an entry came or went.
        self._indexes: dict[TrackKey, EntryIndex] = {}
        #: Requests with open batches that may be retried: of connections that have ended, or answered with an error.
        self._open: dict[TrackKey, dict[PendingProduce, ProducerConnection]] = {}
        #: With the time since when, in seconds.
        self._suspects: dict[TrackKey, list[tuple[Suspect, float]]] = {}
        #: Where the lanes of a former kproxy were fenced, as long as it is known what that had.
        self._recovered: set[TrackKey] = set()
        #: By partition and producer id of other instances: the epoch up to which it was recovered.
        self._recovered_to: dict[TrackKey, dict[int, int]] = {}
        #: By producer id that was recovered somewhere: when it was last known that another instance has or lately had
        #: it, in seconds; and the epoch up to which nobody retries any more, on whatever partition.
        self._recent_at: dict[int, float] = {}
        self._outlived_to: dict[int, int] = {}
        #: By instance, its newest list and what was taken of its lists.
        self._taken_lists: dict[str, tuple[int, frozenset[ListedBatch]]] = {}
        #: By partition and producer id of other instances that use it at the same time: which connection of this
        #: instance had it read last (``ProducerConnection.number``).
        self._shared_looks: dict[TrackKey, dict[int, int]] = {}
        #: Partitions that do not exist, where lanes have to be fenced: the brokers' error, and when they said so
        #: (``Outside.next_serial``).
        self._missing: dict[TrackKey, tuple[int, int]] = {}
        #: Connections that have ended and are still being read.
        self._draining: set[ProducerConnection] = set()
        #: The last that was refused, by partition.
        self.refused: dict[TrackKey, Refused] = {}
        #: Of clients that keep the order of what they repeat, by partition.
        self._awaited_records: dict[TrackKey, AwaitedRecords] = {}
        #: Whether a request waits until one of another connection is answered.
        self._awaited = False
        #: By partition, if it was used within the retry window.
        self._uses: dict[TrackKey, LastUse] = {}
        #: When it was last checked which were, in seconds.
        self._uses_checked_at = 0.0

    def join(self, wire: Wire, since: float, origin: Origin) -> ProducerConnection:
        """A new connection, opened at ``since`` (seconds)."""
        member = ProducerConnection(self, wire, since, origin)
        self._clean_window = max(self._clean_window, origin.clean_window)
        self.members[member.number] = member
        self._by_broker.setdefault(member.node_id, {})[member.number] = member
        return member

    def moved(self, member: ProducerConnection, node_id: int) -> None:
        """Records the broker that a connection's requests go to from now on."""
        self._leave_broker(member)
        member.origin.node_id = node_id
        self._by_broker.setdefault(node_id, {})[member.number] = member
        self.release()

    def _leave_broker(self, member: ProducerConnection) -> None:
        del self._by_broker[member.node_id][member.number]

    # -- before a request is taken

    def is_calm(self, member: ProducerConnection, answer: PendingProduce) -> bool:
        """Whether a request can be accepted as it is: no batch on its partitions is unconfirmed for this connection."""
        calm = self._calm
        for key, _, _ in answer.places:  # noqa: SIM110 - a generator would cost more than the look
            if calm.get(key) is not member:
                return False
        return True

    def is_cleared(
        self,
        member: ProducerConnection,
        answer: PendingProduce,
        frame: bytearray,
        now: float,
    ) -> bool:
        """Whether the headers and first records in a request show that it repeats nothing: it is taken as it is."""
        calm, settled = self._calm, self._settled
        for key, start, end in answer.places:
            if calm.get(key) is member:
                continue
            # of two connections in use each may retry what was not answered on the other: that needs a comparison
            found = settled.get(key)
            if found is None or found[0] is not member:
                return False
            check = found[1]
            if now >= check.until or not check.clears(frame, None, start, end):
                return False
        return True

    def quick_check(self, member: ProducerConnection, key: TrackKey, now: float) -> QuickCheck | None:
        """The check that shows without a comparison that a batch of this connection is new; None: compare the batch."""
        return self._checks.of(member, key, now)

    def prerequisite(self, member: ProducerConnection, answer: PendingProduce, now: float) -> Prerequisite | None:
        """The step or event that a comparison of a request with unconfirmed batches has to wait for; None: compare."""
        found = self._prerequisite(member, answer, now)
        if isinstance(found, Settle):
            self._awaited = True
        return found

    def _prerequisite(self, member: ProducerConnection, answer: PendingProduce, now: float) -> Prerequisite | None:
        self.outside.look_for_ends(now)
        keys = answer.keys
        until = max((self._shows_end_by(member, key, now) for key in keys), default=0.0)
        if until > now:
            return SeeEnd(until)
        older = self._see_older(member, answer, now)
        if older is not None:
            return older
        missing = self.missing_for(member, keys)
        self.take_lists(now)
        recover = self._to_recover(member, [key for key in keys if key not in missing])
        if recover is not None:
            return recover
        if self.rules.joins_open():
            waiting = [
                key
                for key in keys
                if self._is_open(member, key, answer.received_at) or self._overtakes_open(member, key)
            ]
            if waiting:
                return Settle(waiting)
        waiting = [key for key in keys if self._continues_elsewhere(member, key)]
        member.is_behind = bool(waiting)
        if waiting:
            return Settle(waiting)
        unread = [entry for key in keys for entry in self._unread(member, key, answer, now)]
        if unread:
            return ReadBack(unread)
        looks = self.rules.looks_elsewhere(ended=member.ended) and not member.has_looked_elsewhere
        return LookElsewhere() if looks else None

    def looked_elsewhere(self, member: ProducerConnection) -> None:
        """Records that what other instances had leased when a connection had ended is known."""
        member.has_looked_elsewhere = True
        self.outside.changed()

    def is_at_another_instance(self, member: ProducerConnection) -> bool:
        """Whether the client of a connection that has ended may have continued at another instance.

        That has a lease since the connection was opened, and has not given it back.
        """
        since = member.since - CLOCKS_AGREE_SECONDS
        return any(not lane.returned and lane.recorded_at > since for lane in self.outside.elsewhere(self.identity))

    def _shows_end_by(self, member: ProducerConnection, key: TrackKey, now: float) -> float:
        """The time (s) until which a request waits for the end of its connection, which may have been left; 0: none."""
        if member.ended:
            return 0.0
        self._note_outrun(member, self._newer(member, key), now)
        if member.outrun_at == inf:
            return 0.0
        until = self.rules.shows_end_by(member.outrun_at)
        if until <= now:
            member.origin.open_at = member.outrun_asked_at  # in use beside a connection that had been opened by then
        return until

    def _note_outrun(self, member: ProducerConnection, newer: Collection[Origin], now: float) -> None:
        """Records that a request waits whose client may have sent it again over one of these newer connections."""
        if member.outrun_at == inf and newer:
            member.hear()
            if any(self.rules.may_be_left(member.origin, one, now) for one in newer):
                member.outrun_at, member.outrun_asked_at = now, member.origin.asked_at

    def _newer(self, member: ProducerConnection, key: TrackKey) -> list[Origin]:
        """The connection that used a partition last, if it is another one, and those to its broker that wait for it."""
        use = self._uses.get(key)
        found = [] if use is None or use.last in (None, member.origin) else [use.last]
        for other in self._newest_at(member.node_id):
            if other.since > member.since and other.waits_with(key):
                found.append(other.origin)
        return found

    def _see_older(self, member: ProducerConnection, answer: PendingProduce, now: float) -> Settle | SeeEnd | None:
        """The event that has to come before it is known whether a client has left older connections for this one.

        The retry of what was not answered there, or was not acknowledged, may come before the end of the older one.
        """
        keys = [key for key in answer.keys if key not in member.sees_older]
        if not keys or self.rules.pools_connections:
            return None
        for other in self._older(member):
            awaits_end = self._awaits_end(other, keys, member, now)
            unheard = other.unheard(keys, member, now)
            if not (awaits_end or unheard) or self.rules.is_of_another_program(other.origin, member.origin):
                continue
            if not all(is_closed for is_closed, _ in unheard):
                return Settle(keys)
            if awaits_end or not all(self.rules.is_left(told or answer.received_at, now) for _, told in unheard):
                member.looks_since = min(member.looks_since, now)
                return SeeEnd(now + min(max(_LOOKS_AGAIN, now - member.looks_since), _LOOKS_AT_LEAST))
            other.leave(now)
        return None

    def _awaits_end(
        self, member: ProducerConnection, keys: Collection[TrackKey], newer: ProducerConnection, now: float
    ) -> bool:
        """Whether a request for one of these partitions waits for the end of its connection, as a newer one is there.

        It may wait for something else, and not have been asked since the newer one is there.
        """
        if not any(map(member.waits_with, keys)):
            return False
        self._note_outrun(member, (newer.origin,), now)
        return self.rules.awaits_end(member.outrun_at, now)

    def _older(self, member: ProducerConnection) -> list[ProducerConnection]:
        """The connections that were opened before one: to its broker, and to others that may have led before."""
        others = chain(self._newest_at(member.node_id), self._at_other_brokers(member))
        return [other for other in others if other.since < member.since]

    def take_lists(self, now: float) -> None:
        """Takes what other processes had in doubt of this producer: of each list what is new since the last one."""
        for instance_id, listed in self.outside.lists(self.identity).items():
            at_ms, taken = self._taken_lists.get(instance_id, (-1, frozenset()))
            if listed.at_ms == at_ms:
                continue
            self._taken_lists[instance_id] = listed.at_ms, frozenset(listed.batches)
            known, parts = self._known(now)
            for batch in listed.batches:
                told = batch._replace(offsets=tuple(at for at in batch.offsets if at not in parts.get(batch.place, ())))
                if batch in taken or batch.place in known or (batch.place in parts and not told.offsets):
                    continue
                entry = UnconfirmedBatch.of_list(told, self.outside.next_serial(), self._clean_window)
                if not self.rules.expired(entry, now):
                    parts.setdefault(batch.place, set()).update(told.offsets)
                    if not told.offsets:
                        known.add(batch.place)
                    self.add(entry)

    def _known(self, now: float) -> tuple[set[BatchPlace], dict[BatchPlace, set[int]]]:
        """The batches of which all is known here that is in doubt, and by batch the offsets that others have listed.

        Of the rest of the latter nothing is known here.
        """
        repeated = (entry for one in self.members.values() for entry, _ in one.repeated())
        parts: dict[BatchPlace, set[int]] = {}
        for entry in chain(*self.entries.values(), repeated):
            if entry.is_listed_part:
                parts.setdefault(entry.place, set()).update(entry.only or entry.offsets)
        known = {
            batch.place
            for batch in self.in_doubt(now)
            if not (batch.offsets and parts.get(batch.place, set()).issuperset(batch.offsets))
        }
        return known, parts

    def _to_recover(self, member: ProducerConnection, keys: Iterable[TrackKey]) -> Recover | None:
        lanes: dict[Suspect, None] = {}
        places: list[TrackKey] = []
        former: Sequence[Suspect] | None = None
        elsewhere = self.outside.elsewhere(self.identity)
        for key in keys:
            found = [lane for lane, _ in self._suspects.get(key, ())]
            if key not in self._recovered:
                former = self.outside.former(self.identity) if former is None else former
                found += former
            if elsewhere:
                found += [lane for lane in elsewhere if self._must_search(lane, member, key)]
                in_use_until = max(lane.in_use_until for lane in elsewhere)
                for entry in self.entries.get(key, ()):
                    entry.sure = entry.sure and self.rules.surely_not_received_elsewhere(entry, in_use_until)
            if found:
                places.append(key)
                lanes.update(dict.fromkeys(found))
        return Recover(list(lanes), places, member.number) if places else None

    def _must_search(self, lane: Suspect, member: ProducerConnection, key: TrackKey) -> bool:
        """Whether the log has to be searched for what a connection may repeat of another instance's lane."""
        if lane.shared:
            return member.number > self._shared_looks.get(key, {}).get(lane.producer_id, -1)
        if lane.last_epoch <= self._known_to(key, lane.producer_id):
            return False
        return not self.rules.is_answered_by_list(lane, member.since, ended=member.ended)

    def _known_to(self, key: TrackKey, producer_id: int) -> int:
        """The epoch up to which all is known of what another instance wrote to a partition."""
        done = self._recovered_to.get(key, {}).get(producer_id, _NO_EPOCH)
        return max(done, self._outlived_to.get(producer_id, _NO_EPOCH))

    def missing_for(self, member: ProducerConnection, keys: Iterable[TrackKey]) -> dict[TrackKey, int]:
        """The errors of the partitions for which the next request of a connection must not be sent.

        No lane could be fenced there, since the partition did not exist when the request waited. When it appears it
        would take a copy that is still in flight, and the request as well.
        """
        known = ((key, *self._missing[key]) for key in keys if key in self._missing)
        return {key: error for key, error, serial in known if member.waited_at(serial)}

    def missing(self, errors: Mapping[TrackKey, int]) -> None:
        """Records the errors of partitions that do not exist, so that no lane could be fenced there."""
        serial = self.outside.next_serial()
        self._missing.update((key, (error, serial)) for key, error in errors.items())

    def _is_open(self, member: ProducerConnection, key: TrackKey, received_at: float = inf) -> bool:
        first, rules = member.passed.get(key, 0), self.rules
        return any(
            answer.serial >= first
            and (other is not member or answer.given_up or rules.gave_up_open())
            and not (other is member and rules.sent_too_soon(answer.repeated_from, received_at))
            for answer, other in self._open.get(key, {}).items()
        )

    def _overtakes_open(self, member: ProducerConnection, key: TrackKey) -> bool:
        """Whether a newer connection has an open batch for a partition that may repeat one of the request at hand."""
        return len(self.members) > 1 and any(
            other.has_open(key) and self._may_overtake(other, member) for other in self._newest_at(member.node_id)
        )

    def refuse(self, key: TrackKey, refused: Refused, before: Refused | None = None) -> Refused:
        """Records that a request for a partition was refused unsent; returns what is known of it at that time.

        ``before``: the one whose retry it would have overtaken.
        """
        if refused.member is not None:
            refused.member.refused.add(key)
        known = refused.overtaking(before) if before is not None else refused.following(self.refused.get(key))
        if not (known.retry.ended or self._went_on_elsewhere(refused.member, key)):
            self.refused[key] = known
        return known

    def refuse_in_order(
        self,
        member: ProducerConnection,
        key: TrackKey,
        records: Sequence[Digest],
        now: float,
        answer: PendingProduce | None = None,
    ) -> None:
        """Records that a request of a client that keeps its order was refused unsent; ``answer``: the response.

        What other connections have untaken comes after it. If it was sent before, it had been waited for.
        """
        sent, refusal = member.sent_at, Refusal(member.origin, now, answer)
        self._awaited_records.setdefault(key, AwaitedRecords()).refuse(records, now, sent, refusal)
        self.mark_later(member)
        self.disturb(key)

    def mark_earlier(self, member: ProducerConnection, keys: Iterable[TrackKey]) -> None:
        """Records that requests to a former leader, untaken now, were sent before the one of a connection at hand."""
        for other in self._at_other_brokers(member):
            if member.waits_for(other) or any(self._was_used(other, key) for key in keys):
                other.mark_untaken()

    def mark_later(self, member: ProducerConnection) -> None:
        """Records that what is untaken now was sent after the request of a connection at hand.

        What came over that connection was sent before what came to other brokers: to a newer leader, most likely.
        """
        member.mark_untaken()
        for other in self._at_other_brokers(member):
            other.mark_untaken()

    def admits(self, member: ProducerConnection, key: TrackKey, records: Sequence[Digest], now: float) -> bool:
        """Whether these new records may be written now: no record that was refused before still comes (``Rules``)."""
        awaited = self._awaited_records.get(key)
        if awaited is None or not member.keeps_order:
            return True
        is_admitted = awaited.admits(records, now, member.sent_at, member.origin.asked_at)
        if not awaited:
            del self._awaited_records[key]
        return is_admitted

    def awaits(self, key: TrackKey) -> bool:
        """Whether records that were refused still come to a partition."""
        return key in self._awaited_records

    def _went_on_elsewhere(self, member: ProducerConnection | None, key: TrackKey) -> bool:
        """Whether the client has used a partition over another connection since it sent the next request of this one.

        Then it has repeated that request, or given it up.
        """
        if member is None or member.ended:
            return member is not None and self.is_outrun(member, key)
        use = self._uses.get(key)
        return use is not None and use.last is not member.origin and member.waited_at(use.serial)

    def repeats_none(self, member: ProducerConnection, key: TrackKey, received_at: float) -> bool:
        """Whether a request of a connection that was read by then can't be a retry of what is open or unconfirmed."""
        return not (
            self.rules.may_repeat_elsewhere()
            or self.waits
            or key in self._suspects
            or self._draining
            or any(other is not member and other.owed(key) for other in self.members.values())
            or any(
                other is not member or not self.rules.sent_too_soon(answer.repeated_from, received_at)
                for answer, other in self._open.get(key, {}).items()
            )
            or any(entry.written or entry.since <= received_at for entry in self._entries(member, key))
        )

    def refused_elsewhere(self, member: ProducerConnection, key: TrackKey, now: float) -> Refused | None:
        """The request that was refused at another broker, if its retry must not be overtaken over this connection."""
        refused = self.refused.get(key)
        if refused is None:
            return None
        if refused.retry.ended or refused.expired(now):
            del self.refused[key]
            return None
        return None if _beside(refused, member) else refused

    def retried(self, member: ProducerConnection, key: TrackKey, now: float) -> None:
        """Records that a request for a partition was accepted: no refused request there is waited for any more."""
        refused = self.refused.get(key)
        if refused is not None and _beside(refused, member):
            refused.retry.end(now)
            del self.refused[key]

    def release(self) -> None:
        """Records that a request was accepted or answered, or goes elsewhere: another one may have waited for that."""
        if self._awaited:
            self._awaited = False
            self.outside.changed()

    def _continues_elsewhere(self, member: ProducerConnection, key: TrackKey) -> bool:
        """Whether the client sent something for a partition before, to its former leader, of which it has no response.

        Clients count what is in flight by broker: librdkafka sends on to the new leader, also with one in flight. What
        kproxy has not taken yet counts as well, if that connection was the last one to use the partition, or has the
        retries of what was refused there.
        """

        def comes_first(other: ProducerConnection) -> bool:
            precedes = other.precedes(key, member)
            may = precedes or self._was_used(other, key) or member.waits_for(other)
            return (may and other.may_precede(member)) or precedes

        return any(map(comes_first, self._at_other_brokers(member)))

    def _was_used(self, member: ProducerConnection, key: TrackKey) -> bool:
        """Whether a connection was the last one to use a partition, or records that still come were refused there."""
        use, awaited = self._uses.get(key), self._awaited_records.get(key)
        is_last = use is not None and use.last is member.origin
        return is_last or (awaited is not None and awaited.came_over(member.origin))

    def _at_other_brokers(self, member: ProducerConnection) -> Iterator[ProducerConnection]:
        """The connections over which its client may have sent something before it moved, to each broker the newest."""
        for node_id in self._by_broker:
            if node_id != member.node_id:
                yield from self._newest_at(node_id)

    def _newest_at(self, node_id: int) -> Iterator[ProducerConnection]:
        """The connections to a broker that are searched, the newest first."""
        return islice(reversed(self._by_broker[node_id].values()), _MOST_OF_ONE_CLIENT)

    def candidates(
        self,
        member: ProducerConnection,
        key: TrackKey,
        answer: PendingProduce,
        now: float,
        records: Digests | None = None,
    ) -> list[UnconfirmedBatch]:
        """The entries on a partition that a request of this connection may repeat; the likeliest last.

        ``records``: those of the request; entries that have none of them may be left out.

        The likeliest is the newest of those that were surely not received, then of those in doubt, then of those that
        were received. A batch whose error another live connection received is more likely repeated by that one.
        """
        mine, rules = member.origin, self.rules

        def order(entry: UnconfirmedBatch) -> tuple[bool, bool, bool, bool, int]:
            here, received = entry.origin is mine, rules.is_answered(entry)
            return here or entry.origin.ended, here, rules.surely_retried(entry), not received, entry.serial

        left = None if records is None else self._index(key).alike(records.keys)
        return sorted(self._repeatable(member, key, answer, now, self._entries(member, key, left)), key=order)

    def _repeatable(
        self,
        member: ProducerConnection,
        key: TrackKey,
        answer: PendingProduce,
        now: float,
        entries: Iterable[UnconfirmedBatch],
    ) -> Iterator[UnconfirmedBatch]:
        """Those of the ``entries`` on a partition that a request of this connection may repeat."""
        mine, keys, rules = member.origin, answer.keys, self.rules
        return (
            entry
            for entry in self._unconfirmed(member, key, now, entries)
            if entry.beside <= keys
            and not rules.is_sent_before(answer.received_at, entry)
            and not (entry.origin is mine and rules.sent_too_soon(entry.repeated_from, answer.received_at))
        )

    def _unread(
        self, member: ProducerConnection, key: TrackKey, answer: PendingProduce, now: float
    ) -> list[UnconfirmedBatch]:
        """The entries that have to be read back before a request is compared; none where there is a check."""
        if self._checks.of(member, key, now) is not None:
            return []
        entries = self._entries(member, key, self._index(key).unread())
        unread = [entry for entry in entries if entry.digests is None]
        return list(self._repeatable(member, key, answer, now, unread)) if unread else unread

    def _unconfirmed(
        self, member: ProducerConnection, key: TrackKey, now: float, entries: Iterable[UnconfirmedBatch]
    ) -> Iterator[UnconfirmedBatch]:
        """Those of the ``entries`` on a partition that any request of this connection may repeat."""
        first, mine, rules = member.passed.get(key, 0), member.origin, self.rules
        if key in self.entries:
            member.hear()
        # of one connection there may be a thousand
        others: dict[Origin, bool] = {}
        for entry in entries:
            if entry.serial < first or (entry.answered and entry.origin is mine) or rules.expired(entry, now):
                continue
            is_other = others.get(entry.origin)
            if is_other is None:
                is_other = others[entry.origin] = rules.is_of_another_program(entry.origin, mine)
            if not is_other:
                yield entry

    def _entries(
        self, member: ProducerConnection, key: TrackKey, left: Iterable[UnconfirmedBatch] | None = None
    ) -> Iterator[UnconfirmedBatch]:
        """The unconfirmed batches on a partition for this connection; ``left``: all others may repeat only these."""
        overtook = member.overtook.get(key, ())
        if left is None:
            left = self.entries.get(key, ())
        if overtook:  # one of these may be left by now, and each record is to be matched once
            known: dict[BatchPlace, list[UnconfirmedBatch]] = {}
            for entry in overtook:
                known.setdefault(entry.place, []).append(entry)
            left = (entry for entry in left if not any(map(entry.is_within, known.get(entry.place, ()))))
        return chain(left, member.kept.get(key, ()), overtook)

    def _index(self, key: TrackKey) -> EntryIndex:
        """Return what need not be found out again of the entries on a partition."""
        index = self._indexes.get(key)
        if index is None:
            entries = self.entries.get(key)
            if not entries:
                return _NO_ENTRIES
            index = self._indexes[key] = EntryIndex(entries)
        return index

    # -- when it is taken

    def concern(self, member: ProducerConnection, answer: PendingProduce, frame: bytearray, now: float) -> bool:
        """Whether the records of a request matter: something may be repeated by it, or it by another one."""
        if member.ended or any(map(self.awaits, answer.keys)):
            return True
        return not self._clears_all(member, answer, frame, now) and any(
            next(self._repeatable(member, key, answer, now, self._entries(member, key)), None) is not None
            for key in answer.keys
        )

    def _clears_all(self, member: ProducerConnection, answer: PendingProduce, frame: bytearray, now: float) -> bool:
        """Whether checks show of all batches of a request that they repeat nothing."""
        for key, start, end in answer.places:
            check = self._checks.of(member, key, now)
            if check is None or not check.clears(frame, None, start, end):
                return False
        return True

    def is_outrun(self, member: ProducerConnection, key: TrackKey) -> bool:
        """Whether another connection has used a partition since: one that was opened later, or at a later time.

        The other one may be older: clients keep a connection to each broker, and a partition's leader may move back.
        """
        use = self._uses.get(key)
        if use is None:
            return False
        last, used_at = use.last, member.origin.used_at
        return use.newest > member.since or (last is not None and last.used_at > max(member.since, used_at))

    def _used(self, key: TrackKey, since: float) -> LastUse:
        """Records that a partition was used by a connection that was opened at ``since`` (seconds)."""
        use = self._uses.setdefault(key, LastUse(since))
        use.newest, use.idle = max(use.newest, since), False
        return use

    def passes(self, member: ProducerConnection, key: TrackKey) -> None:
        """Records that the last request of a connection had a new record for a partition.

        A client that sends one request at a time has then given up what was accepted before and is not repeated. One
        that has the next request ready has not if a request was refused unsent in between, which may have repeated it.
        """
        if self.rules.keeps_matching(observed=self.depth, requests=self.requests, had_new=True):
            return
        before, last = member.went_on.get(key, 0), member.last_serial
        if last == before:
            return  # it is known of this request
        member.went_on[key] = last
        if not self.rules.has_one_ready():
            member.passed[key] = last
        elif key not in member.refused:
            member.passed[key] = before
        member.refused.discard(key)
        for entry in [entry for entry in self._entries(member, key) if entry.serial < last]:
            entry.sure = False  # an equal record may be a new one by now, if its time is another
            if self.rules.retires() and entry.origin is member.origin:
                self.forget(entry)

    def claim(self, member: ProducerConnection, answer: PendingProduce, new: Iterable[TrackKey], now: float) -> None:
        """Spare requests of this connection on these partitions a check from now on, unless a batch is unconfirmed.

        ``new``: the partitions for which the last request, ``answer``'s, had a record that repeats none.
        """
        for key in new:
            self.passes(member, key)
        member.sees_older.update(answer.keys)
        for key in answer.keys:
            use = self._used(key, member.since)
            if not member.ended:
                use.last, use.serial = member.origin, answer.serial
            self._look_again(key)
            unfenced = key in self._suspects or key in self._missing
            troubled = member.ended or unfenced or self.awaits(key) or self._is_open(member, key)
            repeated = any(entry.key == key for entry in answer.moved)
            check = None if repeated else self._checks.of(member, key, now)
            if check is None and (repeated or self._is_all_taken(member, key)):
                self._prune(member, key)
            if troubled:
                continue
            if check is None:
                unconfirmed = self._unconfirmed(member, key, now, self._entries(member, key))
                first = next(unconfirmed, None)
                if first is None:
                    self._calm[key] = member
                    continue
                check = self._checks.compared(member, key, chain((first,), unconfirmed), repeated, now)
            if check is not None:
                self._settled[key] = member, check

    def _is_all_taken(self, member: ProducerConnection, key: TrackKey) -> bool:
        """Whether nothing is left of all entries on a partition; where something is, that is found at once."""
        return all(entry.is_empty for entry in self._entries(member, key))

    def _prune(self, member: ProducerConnection, key: TrackKey) -> None:
        """Takes out what is no entry any more, since all its records were taken out of it."""
        for entries in (self.entries, *member.own):
            if key in entries:
                left = [entry for entry in entries[key] if not entry.is_empty]
                if len(left) < len(entries[key]):
                    self._indexes.pop(key, None)
                    entries[key] = left
                if not left:
                    del entries[key]

    # -- what becomes of it

    def disturb(self, key: TrackKey) -> None:
        """The next requests on a partition have to be compared in full."""
        self._look_again(key)
        self._checks.reset(key)

    def waited_for(self, member: ProducerConnection, keys: Iterable[TrackKey]) -> None:
        """Records that a request for these partitions waits: others may have to wait for it, or not any more.

        Of two that wait for each other one does not have to (``ProducerConnection.may_precede``), and learns of it.
        """
        for key in keys:
            self._look_again(key)
        if any(other.waits_for(member) for other in self._at_other_brokers(member)):
            self.outside.changed()

    def _look_again(self, key: TrackKey) -> None:
        """The next request on a partition has to be looked at."""
        settled, calm = self._settled.pop(key, None), self._calm.pop(key, None)
        for member in (calm, settled and settled[0]):
            if member is not None:
                self.passes(member, key)  # its requests were not looked at: whatever it brought was new

    def add(self, entry: UnconfirmedBatch) -> None:
        """Takes an entry that any connection of the producer may repeat."""
        self._indexes.pop(entry.key, None)
        insort(self.entries.setdefault(entry.key, []), entry, key=BY_AGE)
        self.outside.grew(entry.size)
        self.disturb(entry.key)

    def opened(self, answer: PendingProduce, member: ProducerConnection) -> None:
        """Takes a request with open batches that any connection of the producer may repeat."""
        for key in answer.keys:
            self._open.setdefault(key, {})[answer] = member
            self.disturb(key)

    def overtakes(self, member: ProducerConnection, answer: PendingProduce, now: float) -> None:
        """Notes what a request brought where an older connection to the broker may have untaken what it repeats."""
        if len(self.members) > 1:  # most often it is alone, and this is on the way of every request
            for other in self._overtaken(member):
                other.is_overtaken(brought_by(answer, member.origin, now))

    def overtakes_any(self, member: ProducerConnection) -> bool:
        """Whether what a connection brings now will be compared with what an older one has untaken."""
        return len(self.members) > 1 and next(self._overtaken(member), None) is not None

    def _overtaken(self, member: ProducerConnection) -> Iterator[ProducerConnection]:
        """The older connections that may have untaken what the client has sent again over this one."""
        if not member.ended:
            for other in self._newest_at(member.node_id):
                if other.owes and self._may_overtake(member, other):
                    yield other

    def is_overtaken(self, member: ProducerConnection, key: TrackKey) -> None:
        """The next request of a connection on a partition has to be compared in full."""
        self._checks.end(member, key)
        settled = self._settled.get(key)
        if self._calm.get(key) is member or (settled is not None and settled[0] is member):
            self._look_again(key)

    def _may_overtake(self, member: ProducerConnection, older: ProducerConnection) -> bool:
        """Whether a client may have left an older connection for this one, and send again over it what lies there."""
        mine, rules = member.origin, self.rules
        if not rules.may_overtake(older.origin, mine):
            return False
        older.hear()
        return rules.may_overtake(older.origin, mine) and not rules.is_of_another_program(mine, older.origin)

    def settled(self, answer: PendingProduce) -> None:
        """Records that no batch of a request is open any more, or that nobody will learn its outcome."""
        for key in answer.keys:
            answers = self._open.get(key, {})
            answers.pop(answer, None)
            if not answers:
                self._open.pop(key, None)
        self.outside.changed()

    def suspect(self, key: TrackKey, lane: Suspect, now: float) -> None:
        """A lane has to be fenced on a partition before this producer uses it again."""
        self._suspects.setdefault(key, []).append((lane, now))
        self.disturb(key)

    def leaves(self, member: ProducerConnection) -> None:
        """Records that a connection is about to end: what it has given up is known from now on."""
        calm = [key for key, one in self._calm.items() if one is member]
        for key in [*calm, *(key for key, (one, _) in self._settled.items() if one is member)]:
            self.disturb(key)

    def left(self, member: ProducerConnection) -> None:
        """Records that a connection has ended; it may still be read."""
        del self.members[member.number]
        self._leave_broker(member)
        self._draining.add(member)
        for key in {*self._calm, *self._checks.keys()}:  # a check of its own would pass over that it was outrun
            self.disturb(key)
        self.outside.changed()

    def drained(self, member: ProducerConnection) -> None:
        """Records that nothing more of it will be read."""
        self._draining.discard(member)

    def recovered(self, recover: Recover, found: Iterable[FoundBatch], now: float) -> None:
        """Takes what the log holds of suspect lanes, in order."""
        lanes = set(recover.lanes)
        producer_ids = {lane.producer_id for lane in lanes}
        known = {(key, one): self._known_to(key, one) for key in recover.keys for one in producer_ids}
        for key in recover.keys:
            self._missing.pop(key, None)
            for lane in lanes:
                if lane.elsewhere:
                    self._note_search(key, lane, recover.number, now)
            self._recovered.add(key)
            left = [(lane, since) for lane, since in self._suspects.pop(key, ()) if lane not in lanes]
            if left:
                self._suspects[key] = left
        here, parts = self._known(now)
        here.update(
            entry.place for key in recover.keys for entry in self.entries.get(key, ()) if not entry.is_listed_part
        )
        for batch in found:
            header = batch.header
            if header.producer_epoch <= known.get((batch.key, header.producer_id), _NO_EPOCH):
                continue  # it was found before
            wrote = [
                lane for lane in lanes if lane.wrote(header.producer_id, header.producer_epoch, header.base_sequence)
            ]
            for lane in wrote:
                if lane.elsewhere:
                    self._used(batch.key, lane.recorded_at + CLOCKS_AGREE_SECONDS)
            place = batch.key, header.producer_id, header.producer_epoch, header.base_sequence
            if wrote and place not in here:
                self._add_found(batch, wrote, parts.get(place, ()), now)
        self.outside.changed()

    def _note_search(self, key: TrackKey, lane: Suspect, number: int, now: float) -> None:
        """Records that a lane of another instance was searched for on a partition."""
        if lane.shared:  # it continues to write
            self._shared_looks.setdefault(key, {})[lane.producer_id] = number
            return
        self._recent_at[lane.producer_id] = now
        done = self._recovered_to.setdefault(key, {})
        done[lane.producer_id] = max(lane.last_epoch, done.get(lane.producer_id, _NO_EPOCH))

    def _add_found(self, batch: FoundBatch, wrote: Sequence[Suspect], listed: Collection[int], now: float) -> None:
        """Takes a batch from the log without the records that are ``listed``, by their offsets."""
        header = batch.header
        stamp = Stamp(
            header.producer_id, header.producer_epoch, header.base_sequence, header.base_offset, header.record_count
        )
        entry = UnconfirmedBatch(batch.key, stamp, self.outside.next_serial(), False, False, now, found=True)
        entry.timed_only = self.rules.is_found_by_time_only(wrote, is_last=batch.is_last)
        entry.is_part = bool(listed)
        left = [at for at, offset in enumerate(batch.offsets) if offset not in listed]
        entry.recall(batch.digests.chosen(left), [batch.offsets[at] for at in left])
        if left:
            self.add(entry)

    @property
    def may_be_in_doubt(self) -> bool:
        """False where ``in_doubt`` is empty, or has only what a live connection has repeated or kept."""
        return bool(self.entries or self._open or self._taken_lists)

    def in_doubt(self, now: float) -> list[ListedBatch]:
        """Batches that another process has to compare with the requests that this producer sends there.

        Not what only the log says: another process searches the log for the same.
        """
        members = self.members.values()
        found = [
            entry.as_listed(entry.since)
            for entry in chain(*self.entries.values(), *(kept for one in members for kept in one.kept.values()))
            if entry.written and not entry.found and not entry.is_empty and not self.rules.expired(entry, now)
        ]
        opened = {answer: None for answers in self._open.values() for answer in answers}
        repeated = chain(
            (pair for one in members for pair in one.repeated()),
            ((entry, answer) for answer in opened for entry in answer.moved),
        )
        found += [
            entry.as_listed(entry.since if answer.received_at == inf else answer.received_at)
            for entry, answer in repeated
        ]
        return found

    def forget(self, entry: UnconfirmedBatch) -> None:
        """Drops an entry that the log does not hold, or that can't be read."""
        self._indexes.pop(entry.key, None)
        for entries in (self.entries, *(one for member in self.members.values() for one in member.own)):
            if entry in entries.get(entry.key, ()):
                entries[entry.key].remove(entry)
                if not entries[entry.key]:
                    del entries[entry.key]

    def cut(self, key: TrackKey, offset: int) -> None:
        """Drops what was acknowledged with this offset or later: a partition's log has lost it."""
        for member in self.members.values():
            member.cut(key, offset)
        for entries in (self.entries, *(own for member in self.members.values() for own in member.own)):
            for entry in [one for one in entries.get(key, ()) if one.stamp.base_offset >= offset]:
                self.forget(entry)
                self.disturb(key)

    # -- when time goes by

    def expire(self, now: float) -> None:
        """Drops what no client can repeat any more."""
        self._missing.clear()  # the next request asks again
        self._indexes.clear()
        self._forget_lists(now)
        self._forget_outlived(now)
        self._forget_unused(now)
        for key, entries in list(self.entries.items()):
            left = [entry for entry in entries if not self.rules.expired(entry, now)]
            if left:
                self.entries[key] = left
            else:
                del self.entries[key]
        self._expire_refused(now)
        for member in self.members.values():
            for own in member.own:
                for key, entries in list(own.items()):
                    if all(self.rules.expired(entry, now) for entry in entries):
                        del own[key]
        for key, suspects in list(self._suspects.items()):
            left_over = [(lane, since) for lane, since in suspects if now - since <= self.rules.window]
            if left_over:
                self._suspects[key] = left_over
            else:
                del self._suspects[key]

    def _expire_refused(self, now: float) -> None:
        for key, refused in list(self.refused.items()):
            if refused.expired(now):
                del self.refused[key]
        for key, awaited in list(self._awaited_records.items()):
            if now - awaited.since > self.rules.window:
                del self._awaited_records[key]

    def _forget_lists(self, now: float) -> None:
        """Forgets lists of which no batch is in doubt any more."""
        soonest_ms = (now - self.rules.window) * 1000
        for instance_id, (_, batches) in list(self._taken_lists.items()):
            if all(batch.since_ms < soonest_ms for batch in batches):
                del self._taken_lists[instance_id]

    def _forget_outlived(self, now: float) -> None:
        """Keeps one epoch, not one for each partition, of what other instances gave back long ago."""
        if not self._recent_at:
            return
        recent = self.outside.recent(self.identity)
        self._recent_at = {one: now if one in recent else at for one, at in self._recent_at.items()}
        gone = [one for one, at in self._recent_at.items() if now - at > self.rules.window]
        for producer_id in gone:
            del self._recent_at[producer_id]
            epochs = [done.pop(producer_id, _NO_EPOCH) for done in self._recovered_to.values()]
            self._outlived_to[producer_id] = max(self._outlived_to.get(producer_id, _NO_EPOCH), *epochs)
        for key in [key for key, done in self._recovered_to.items() if not done]:
            del self._recovered_to[key]

    def _forget_unused(self, now: float) -> None:
        """Forgets what a former kproxy had, once nobody asks for it, and who used a partition a retry window ago."""
        if self._recovered and not self.outside.former(self.identity):
            self._recovered.clear()
        if self._shared_looks and not any(lane.shared for lane in self.outside.elsewhere(self.identity)):
            self._shared_looks.clear()
        if abs(now - self._uses_checked_at) < self.rules.window:
            return
        self._uses_checked_at = now
        for key, use in list(self._uses.items()):
            if key in self._calm or key in self._settled:
                continue  # its requests are accepted without a look: it may be in use
            if use.idle:
                del self._uses[key]
            else:
                use.idle = True

    @property
    def count(self) -> int:
        """Unconfirmed batches, open ones included; without those whose connection ended well after the response."""
        return self.held - self.ended_well

    @property
    def ended_well(self) -> int:
        """Unconfirmed batches whose connection ended in good order after the response, or nearly surely did."""
        return sum(entry.clean or entry.timed_only for entries in self.entries.values() for entry in entries)

    @property
    def held(self) -> int:
        """All batches that a request may be compared with, open ones included."""
        return sum(map(len, self.entries.values())) + sum(map(len, self._open.values()))

    @property
    def size(self) -> int:
        """The approximate bytes of memory that it takes for what is unconfirmed, without ``found``."""
        entries = sum(entry.size for entry in chain(self.left_behind(), self._live()))
        awaited = sum(awaited.size for awaited in self._awaited_records.values())
        indexes = sum(index.size for index in self._indexes.values())
        return entries + awaited + indexes + (LEDGER_BYTES if self.entries else 0)

    @property
    def compares(self) -> bool:
        """Whether a request waits: the records that it is compared with must not be forgotten before that."""
        return any(member.is_waiting for member in self.members.values())

    def found(self) -> Iterator[UnconfirmedBatch]:
        """The batches that were found far back in logs (``UnconfirmedBatch.timed_only``)."""
        return (entry for entries in self.entries.values() for entry in entries if entry.timed_only)

    def left_behind(self) -> Iterator[UnconfirmedBatch]:
        """The other batches of connections that have ended, and of requests that were answered with an error."""
        return (entry for entries in self.entries.values() for entry in entries if not entry.timed_only)

    def _live(self) -> Iterator[UnconfirmedBatch]:
        for member in self.members.values():
            yield from chain.from_iterable(entries for own in member.own for entries in own.values())
            yield from (entry for entry, _ in member.repeated())

    def recalled(self) -> Iterator[UnconfirmedBatch]:
        """The batches whose records are in memory, those of live connections included; without ``found``."""
        return (entry for entry in chain(self.left_behind(), self._live()) if entry.digests)

    def forget_order(self) -> int:
        """Forgets which refused records still come; about how many bytes that freed."""
        freed = sum(awaited.size for awaited in self._awaited_records.values())
        self._awaited_records.clear()
        return freed

    @property
    def idle(self) -> bool:
        """Whether it may be forgotten."""
        held = self.entries or self._open or self._suspects or self._awaited_records or self._taken_lists
        return not (self.members or self._draining or held)


def _beside(refused: Refused, member: ProducerConnection) -> bool:
    """Whether a request was refused at the broker that a connection is to."""
    return refused.member is not None and refused.member.node_id == member.node_id
