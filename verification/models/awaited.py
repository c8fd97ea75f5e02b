"""Explicit-state model: records that were refused unsent are awaited, and nothing of their client overtakes them.

One client that keeps its order (librdkafka): its queue is in the order of the records, whatever was refused goes back
to its place there, and a request takes any number of records from the front. It has a connection to each of two
brokers, and sends to the one that it takes for the leader of the only partition. So requests to the former leader may
still be in the network, unread in kproxy's kernel, or open, while the next one goes to the new leader.

kproxy is its own: ``RetryLedgers`` with its connections (``ProducerConnection``) and awaited records
(``AwaitedRecords``), ``Retries`` and lanes. They are kept with each state, and do what a session does with them. A
request that waits is offered again only when the ledger says that something has changed, as in the shell. Then a
request that waits for nothing is found to be stuck.

``python -m verification.models.awaited`` explores every interleaving of each scenario, and each rule replaced by one
that must fail. The exit status is the number of surprises.

- **order**: the records are in the log in the order of the queue, except where nobody inside kproxy can know it
  (``NETWORK``, ``UNREAD``). Each scenario names the exceptions that must be found, and no other may be.
- **twice**, **lost**: a record is in the log two times, or was acknowledged and is not there.
- **stuck**: once faults end, there is no way on which all records are written that the client has not given up.

Faults are moves of the leader, refusals, late responses, and records that the client gives up. Not modelled:
connections that end (``evidence``), times, several partitions, a broker that refuses what was accepted, records beyond
``MOST_RECORDS``, requests that are taken without a comparison since others before them repeated nothing
(``QuickCheck``).
"""

import copyreg
import io
import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, Final, NamedTuple
from unittest import mock

import click

from kproxy.budget import unbounded
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.awaited_records import READ_SECONDS, AwaitedRecords, Refusal
from kproxy.dedup.digest import Digests
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import Lane, TrackKey
from kproxy.dedup.origin import NO_SILENCE, Origin, Software
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.retry_ledger import ReadBack, RetryLedger, Settle
from kproxy.dedup.retry_ledgers import RetryLedgers
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import PendingProduce, UnconfirmedBatch
from kproxy.proxy.produce_calls import PartitionCall
from kproxy.proxy.reading import Reading
from kproxy.proxy.retries import Retries, digests_at
from kproxy.proxy.retry_stats import RetryStats
from verification.models.scenario_runs import run_scenarios
from verification.models.search import Search, Trace

KEY: Final[TrackKey] = (b"t", 0)
#: The records in the order of the queue. The first one was written and answered before anything else happens.
_ALL: Final = "0abcd"
_BROKERS: Final = (0, 1)
#: The time at which all happens: the order alone is explored.
_NOW: Final = 1000.0
_LIMIT: Final = 1 << 20
_IDENTITY: Final = Identity("", "rsyslog", "localhost")
_SOFTWARE: Final = Software("librdkafka", "2.3.0")
_RULES: Final = Rules(window=120.0, in_flight=None, client_timeout=60.0)

NETWORK: Final = "in the network"
"""A request with the earlier record had not arrived in kproxy's kernel when one with the later record had."""
UNREAD: Final = "unread at the same time"
"""Both were in the kernel, unread, on two connections: the one with the earlier record was not the last in use."""


# -- kproxy


class Wire:
    """A client's connection as kproxy's rules see it; each request is one byte."""

    def __init__(self) -> None:
        self.written = self.writing = 0
        #: Requests that were taken, and that are in the kernel or at hand.
        self.taken = self.waiting = 0
        self.changed: Callable[[], None] | None = None

    def unacked(self) -> int:
        return 0

    def closed_well(self) -> bool:
        return True

    @property
    def received(self) -> int:
        return self.taken

    def arrived(self) -> int:
        return self.taken + self.waiting

    def has_taken(self, position: int) -> bool:
        return self.taken >= position or not self.waiting

    def may_have_ended(self) -> bool:
        return self.waiting > 1

    def tell_taken(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def take(self) -> None:
        """The request at hand is taken: those that wait for it learn of it."""
        self.taken, self.waiting = self.taken + 1, self.waiting - 1
        changed, self.changed = self.changed, None
        if changed is not None:
            changed()


@dataclass(eq=False)
class Slot:
    """A request without a response, and what becomes of it."""

    text: str
    answer: PendingProduce
    part: PartitionCall
    is_answered: bool = False


@dataclass(eq=False)
class Session:
    """One connection: its requests in the order of their responses."""

    wire: Wire
    member: ProducerConnection
    lane: Lane
    slots: deque[Slot] = field(default_factory=deque)
    #: Accepted batches that are not in the log.
    open: deque[Slot] = field(default_factory=deque)
    #: Its request waits, and nothing has changed since it was looked at.
    is_parked: bool = False
    #: It has a producer id; its first request waits for one.
    is_leased: bool = True


def _no_suspects(_: Identity) -> Sequence[Suspect]:
    return ()


def _no_ends(_: float) -> None:
    pass


def _no_ids(_: Identity) -> Collection[int]:
    return ()


def _no_lists(_: Identity) -> Mapping[str, Any]:
    return {}


class Kproxy:
    """The ledger of the client and its two connections, with what a session does with them."""

    def __init__(self) -> None:
        #: By producer id and sequence of a batch in the log, its records and offset.
        self.batches: dict[tuple[int, int], tuple[str, int]] = {}
        self.end = 0
        self.sessions: list[Session] = []
        ledgers = RetryLedgers(_RULES, _no_suspects, self._changed, _no_ends, _no_suspects, _no_ids, _no_lists)
        for broker in _BROKERS:
            wire, origin = Wire(), Origin(_SOFTWARE, node_id=broker)
            member = ledgers.join(_IDENTITY, wire, _NOW, origin)
            self.sessions.append(Session(wire, member, Lane(100 + broker)))

    @property
    def ledger(self) -> RetryLedger:
        """That of the client."""
        return self.sessions[0].member.ledger

    def _changed(self) -> None:
        for session in self.sessions:
            session.is_parked = False

    def offer(self, at: int, text: str, *, refused: bool) -> bool:
        """Takes the request at hand of a connection, as ``ProduceGate._produce`` does; whether it was taken.

        ``refused``: a broker has said that it does not lead the partition, so the request is refused unsent.
        """
        session = self.sessions[at]
        member, ledger = session.member, self.ledger
        if not session.is_leased:
            session.is_parked = True
            member.waits([KEY])
            return False
        frame = bytearray(batch_of(text))
        answer = PendingProduce([PartitionData(KEY, 0, len(frame))], inf, _NOW)
        member.review(_NOW, NO_SILENCE, _NOW)
        calm = ledger.is_calm(member, answer) or ledger.is_cleared(member, answer, frame, _NOW)
        retries = None
        if not calm:
            if not self._is_clear(session, answer):
                return False
            if ledger.concern(member, answer, frame, _NOW):
                reading = Reading([(memoryview(frame), None)], unbounded())
                reading.at_once()
                retries = Retries(member, answer, _NOW, reading, RetryStats())
        part = PartitionCall(*KEY)
        left = [(part, memoryview(frame), len(text))]
        if refused:
            part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._refuse(member, text, answer)
            left = []
        elif retries is not None:
            left = retries.strip(left[0], 0)
        for _, data, count in left:
            part.sends.append(session.lane.track(KEY).accept(data, count, _NOW))
        answer.sends = tuple(part.sends)
        member.arrived(answer, _NOW)
        if not calm:
            ledger.claim(member, answer, [] if refused else answer.keys if retries is None else retries.new, _NOW)
        slot = Slot(text, answer, part)
        session.slots.append(slot)
        if part.sends:
            session.open.append(slot)
        else:
            self._close(session, slot)
        self._taken(session)
        return True

    def _is_clear(self, session: Session, answer: PendingProduce) -> bool:
        """Whether a request can be compared, as ``ProduceGate._prerequisite`` and the shell see to it."""
        while (need := self.ledger.prerequisite(session.member, answer, _NOW)) is not None:
            session.is_parked = True
            if isinstance(need, Settle):
                session.member.waits([KEY])
                return False
            assert isinstance(need, ReadBack), need
            for entry in need.entries:
                text, offset = self.batches[entry.stamp.producer_id, entry.stamp.sequence]
                entry.recall(digests_at(batch_of(text), _LIMIT)[0], list(range(offset, offset + len(text))))
        return True

    def refuse_late(self, at: int, text: str) -> None:
        """The request at hand has waited for too long (``ProduceGate.refuse_late``)."""
        session = self.sessions[at]
        part = PartitionCall(*KEY, [], ErrorCode.REQUEST_TIMED_OUT)
        slot = Slot(text, PendingProduce([PartitionData(KEY, 0, 0)], inf), part, is_answered=True)
        session.slots.append(slot)
        self._refuse(session.member, text, slot.answer)
        self._taken(session)

    def lease(self, at: int) -> None:
        """A connection has a producer id now."""
        session = self.sessions[at]
        session.is_leased, session.is_parked = True, False

    def wait(self) -> None:
        """So much time passes that the client has read all responses (``READ_SECONDS``)."""
        awaited = self.ledger._awaited_records.get(KEY)
        for refusal in awaited._told if awaited is not None else ():
            if refusal.answer is not None and refusal.answer.position:
                refusal.answer.at = min(refusal.answer.at, _NOW - READ_SECONDS)

    def _refuse(self, member: ProducerConnection, text: str, answer: PendingProduce) -> None:
        """As ``ProduceGate._note_refused``."""
        member.refused_unsent(KEY, digests_of(text), _NOW, _NOW)
        assert member.keeps_order
        member.ledger.refuse_in_order(member, KEY, digests_of(text), _NOW, answer)

    def _taken(self, session: Session) -> None:
        session.is_parked = False
        session.member.waits_no_more()
        session.wire.take()

    def write(self, at: int) -> str:
        """The oldest open batch of a connection is appended; its records."""
        session = self.sessions[at]
        slot = session.open.popleft()
        text = ""
        for send in slot.part.sends:
            new = text_of(digests_at(bytes(send.batch), _LIMIT)[0])
            self.batches[send.track.producer_id, send.sequence] = new, self.end
            send.track.answered(send, 0, self.end, -1)
            self.end += len(new)
            text += new
        self._close(session, slot)
        return text

    def _close(self, session: Session, slot: Slot) -> None:
        if slot.part.error_code:  # as ``ProduceGate._note_failures``
            slot.answer.failed, slot.answer.failures = True, (KEY,)
        session.member.closed(slot.answer, _NOW)
        slot.is_answered = True

    def time_out(self, at: int) -> None:
        """The oldest request of a connection is answered while its batch is open (``ProduceGate.time_out``)."""
        slot = self.sessions[at].slots[0]
        self.sessions[at].member.timed_out(slot.answer)
        slot.is_answered = True

    def respond(self, at: int) -> list["Response"]:
        """The responses that can be written now, in order."""
        session = self.sessions[at]
        found = []
        while session.slots and session.slots[0].is_answered:
            slot = session.slots.popleft()
            session.wire.written += 1
            slot.answer.position, slot.answer.at = session.wire.written, _NOW
            found.append(Response(slot.text, not slot.part.error))
        return found

    # -- what a state is known by

    def key(self) -> tuple[object, ...]:
        """All that the next steps depend on, with the places among all requests counted from 0."""
        ledger, members = self.ledger, [session.member for session in self.sessions]
        awaited, use = ledger._awaited_records.get(KEY), ledger._uses.get(KEY)
        serials = {mark[1] for member in members for mark in member._marks}
        serials.update(member._waiting[0] for member in members if member._waiting is not None)
        serials.update(int(one) for one in (awaited._sent if awaited is not None else ()))
        if use is not None:
            serials.add(use.serial)
        rank = {serial: number for number, serial in enumerate(sorted(serials))}
        at = {member.origin: number for number, member in enumerate(members)}
        return (
            None if awaited is None else _awaited_key(awaited, rank, at),
            tuple(_entry_key(entry, at) for entry in ledger.entries.get(KEY, ())),
            None if use is None else (rank[use.serial], None if use.last is None else at[use.last]),
            tuple(member in ledger._calm.values() for member in members),
            tuple(any(member is one for one, _ in ledger._settled.values()) for member in members),
            ledger._awaited,
            tuple(self._session_key(session, rank) for session in self.sessions),
        )

    def _session_key(self, session: Session, rank: Mapping[int, int]) -> tuple[object, ...]:
        member, wire = session.member, session.wire
        assert not member.kept
        owed = member.owed(KEY)
        return (
            None if member._waiting is None else rank[member._waiting[0]],
            member.is_behind,
            tuple(position - other.wire.received for other, position in member._behind.items()),
            tuple((position - wire.taken, rank[serial]) for position, serial in member._marks),
            bool(owed),
            all(answer.repeated_from == inf for answer in owed),
            session.is_parked,
            session.is_leased,
            wire.changed is not None,
            tuple((slot.text, slot.is_answered, slot.part.error_code) for slot in session.slots),
            tuple((slot.text, slot.answer.given_up) for slot in session.open),
        )


class Response(NamedTuple):
    """A response, and whether it is a success."""

    text: str
    is_success: bool


@cache
def batch_of(text: str) -> bytes:
    """A batch with a record for each letter; the timestamps are those of their order."""
    records = [Record(at, 1 + _ALL.index(letter), None, letter.encode(), ()) for at, letter in enumerate(text)]
    return bytes(build_batch(records))


@cache
def digests_of(text: str) -> Digests:
    """The marks of these records."""
    return digests_at(batch_of(text), _LIMIT)[0]


def text_of(records: Sequence[tuple[bytes, int]]) -> str:
    """The letters of these records."""
    return "".join(_ALL[time - 1] for _, time in records)


@cache
def _letter_of(hashed: int) -> str:
    for letter in _ALL:
        one = AwaitedRecords()
        one.refuse(digests_of(letter), _NOW)
        if one._records[0] == hashed:
            return letter
    raise AssertionError("a record of another client")


def _awaited_key(awaited: AwaitedRecords, rank: Mapping[int, int], at: Mapping[Origin, int]) -> tuple[object, ...]:
    numbers = {refusal: number for number, refusal in enumerate(sorted(set(awaited._refusals)))}
    return (
        "".join(map(_letter_of, awaited._records)),
        tuple(numbers[refusal] for refusal in awaited._refusals),
        tuple(rank[int(sent)] for sent in awaited._sent),
        tuple((at[awaited._told[on].origin], awaited._told[on].was_read(_NOW)) for on in awaited._on),
        tuple(sorted(at[origin] for origin in awaited._origins)),
    )


def _entry_key(entry: UnconfirmedBatch, at: Mapping[Origin, int]) -> tuple[object, ...]:
    records = None if entry.digests is None else text_of(entry.digests)
    return records, entry.written, entry.sure, entry.answered, at.get(entry.origin), entry.stamp.sequence


#: Batches are views of the bytes of their request.
_REDUCED: Final = {**copyreg.dispatch_table, memoryview: lambda view: (_view, (bytes(view),))}


def _view(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


# -- the world


class Link(NamedTuple):
    """One connection between the client and kproxy."""

    #: In the network, and in kproxy's kernel or at hand.
    sent: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    #: Requests that were taken and have no response.
    taken: int = 0
    responses: tuple[Response, ...] = ()

    @property
    def in_flight(self) -> int:
        """Requests of which the client has read no response."""
        return len(self.sent) + len(self.unread) + self.taken + len(self.responses)


class Facts(NamedTuple):
    """All that there is except kproxy."""

    queue: str
    leader: int = 0
    links: tuple[Link, Link] = (Link(), Link())
    log: str = ""
    done: str = ""
    given_up: str = ""
    #: Pairs of records whose order nobody inside kproxy could know at some time, and why.
    unordered: frozenset[tuple[str, str, str]] = frozenset()
    #: The exceptions by which records are in the log in another order.
    excuses: frozenset[str] = frozenset()
    wrong: str = ""
    moves: int = 0
    refusals: int = 0
    late: int = 0
    gives: int = 0


class State:
    """Facts, and kproxy with them."""

    __slots__ = ("_hash", "facts", "frozen", "key")

    def __init__(self, facts: Facts, kproxy: Kproxy) -> None:
        self.facts = facts
        self.key = facts, kproxy.key()
        self._hash = hash(self.key)
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = _REDUCED
        pickler.dump(kproxy)
        #: kproxy; empty once the state was explored.
        self.frozen = stream.getvalue()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.key == other.key

    def thaw(self) -> Kproxy:
        """kproxy, for one step."""
        kproxy: Kproxy = pickle.loads(self.frozen)
        return kproxy


@dataclass(frozen=True)
class Scenario:
    """What may happen, and what must be found."""

    name: str
    flaw: str | None = None
    #: The exceptions of the order that must be found.
    excuses: frozenset[str] = frozenset()
    records: int = 3
    #: Requests that the client has in flight on each connection, and records in each.
    depth: int = 2
    size: int = 3
    moves: int = 0
    refusals: int = 0
    late: int = 0
    gives: int = 0
    #: Requests take a time of their own in the network; else they are in kproxy's kernel at once.
    is_slow: bool = False
    #: The partition was used before, over the connection to its first leader.
    is_used: bool = True
    #: The connection to the other broker is new: its first request waits for a producer id.
    is_new: bool = False
    #: Methods of kproxy's that are replaced.
    replaced: tuple[tuple[type, str, object], ...] = ()

    @property
    def first(self) -> State:
        """Nothing was sent."""
        facts, kproxy = Facts(_ALL[1 : 1 + self.records], log=_ALL[0]), Kproxy()
        kproxy.sessions[1].is_leased = not self.is_new
        if self.is_used:
            kproxy.sessions[0].wire.waiting += 1
            kproxy.offer(0, _ALL[0], refused=False)
            kproxy.write(0)
            kproxy.respond(0)
        budget = {name: getattr(self, name) for name in ("moves", "refusals", "late", "gives")}
        return State(facts._replace(**budget), kproxy)


_FAULT: Final = "fault: "


class _Step:
    """What happens next in one state."""

    def __init__(self, scenario: Scenario, state: State) -> None:
        self.scenario, self.state, self.facts = scenario, state, state.facts

    def moves(self) -> Iterator[tuple[str, State]]:
        yield from self._of_client()
        for at in _BROKERS:
            yield from self._of_link(at)
            yield from self._of_kproxy(at)
        self.state.frozen = b""

    def _same_kproxy(self, facts: Facts, change: Callable[[Kproxy], None] | None = None) -> State:
        kproxy = self.state.thaw()
        if change is not None:
            change(kproxy)
        return State(facts, kproxy)

    # -- the client

    def _of_client(self) -> Iterator[tuple[str, State]]:
        facts, scenario = self.facts, self.scenario
        if facts.queue and not any(one.sent or one.unread or one.responses for one in facts.links):
            yield "the client waits until all is read", self._same_kproxy(facts, Kproxy.wait)
        link = facts.links[facts.leader]
        if facts.queue and link.in_flight < scenario.depth:
            for count in range(1, 1 + min(len(facts.queue), scenario.size)):
                text, rest = facts.queue[:count], facts.queue[count:]
                yield f"the client sends {text} to {facts.leader}", self._sent(facts._replace(queue=rest), text)
        if facts.moves and (facts.queue or any(one.in_flight for one in facts.links)):
            moved = facts._replace(leader=1 - facts.leader, moves=facts.moves - 1)
            yield f"{_FAULT}the client learns that {moved.leader} is the leader", self._same_kproxy(moved)
        if facts.gives and facts.queue:
            first, rest = facts.queue[0], facts.queue[1:]
            left = facts._replace(queue=rest, given_up=facts.given_up + first, gives=facts.gives - 1)
            yield f"{_FAULT}the client gives up {first}", self._same_kproxy(left)
        for at, one in enumerate(facts.links):
            if one.responses:
                name = f"the client reads of {at}: {one.responses[0]}"
                yield name, self._same_kproxy(_read(facts, at))

    def _sent(self, facts: Facts, text: str) -> State:
        at, link = facts.leader, facts.links[facts.leader]
        if self.scenario.is_slow:
            return self._same_kproxy(_link(facts, at, sent=(*link.sent, text)))
        return self._arrived(_link(facts, at, unread=(*link.unread, text)), at)

    def _arrived(self, facts: Facts, at: int) -> State:
        def arrive(kproxy: Kproxy) -> None:
            kproxy.sessions[at].wire.waiting += 1

        return self._same_kproxy(_seen(facts) if self.scenario.excuses else facts, arrive)

    def _of_link(self, at: int) -> Iterator[tuple[str, State]]:
        link = self.facts.links[at]
        if link.sent:
            moved = _link(self.facts, at, sent=link.sent[1:], unread=(*link.unread, link.sent[0]))
            yield f"{link.sent[0]} arrives at {at}", self._arrived(moved, at)

    # -- kproxy

    def _of_kproxy(self, at: int) -> Iterator[tuple[str, State]]:
        kproxy = self.state.thaw()
        session = kproxy.sessions[at]
        link, facts = self.facts.links[at], self.facts
        if link.unread and not session.is_parked:
            yield self._offered(at, self.state.thaw())
            if facts.refusals:
                yield from self._refused(at)
        if link.unread and facts.refusals and session.member._waiting is not None:
            late = self.state.thaw()
            late.refuse_late(at, link.unread[0])
            after = facts._replace(refusals=facts.refusals - 1)
            yield f"{_FAULT}{link.unread[0]} has waited for too long at {at}", self._after(after, at, late)
        if not session.is_leased and session.member._waiting is not None:
            leased = self.state.thaw()
            leased.lease(at)
            yield f"{at} has a producer id", State(facts, leased)
        if session.open:
            written = self.state.thaw()
            text = written.write(at)
            appended = _appended(facts, text)
            yield f"{text} of {at} is written", self._answered(appended, at, written)
        if facts.late and session.slots:
            timed_out = self.state.thaw()
            timed_out.time_out(at)
            after = facts._replace(late=facts.late - 1)
            name = f"{_FAULT}{session.slots[0].text} is answered at {at} before it is written"
            yield name, self._answered(after, at, timed_out)

    def _offered(self, at: int, kproxy: Kproxy) -> tuple[str, State]:
        text = self.facts.links[at].unread[0]
        if not kproxy.offer(at, text, refused=False):
            return f"{text} waits at {at}", State(self.facts, kproxy)
        return f"kproxy takes {text} at {at}", self._after(self.facts, at, kproxy)

    def _refused(self, at: int) -> Iterator[tuple[str, State]]:
        kproxy, text = self.state.thaw(), self.facts.links[at].unread[0]
        if kproxy.offer(at, text, refused=True):
            after = self.facts._replace(refusals=self.facts.refusals - 1)
            yield f"{_FAULT}{text} is refused at {at}", self._after(after, at, kproxy)

    def _after(self, facts: Facts, at: int, kproxy: Kproxy) -> State:
        link = facts.links[at]
        return self._answered(_link(facts, at, unread=link.unread[1:], taken=link.taken + 1), at, kproxy)

    def _answered(self, facts: Facts, at: int, kproxy: Kproxy) -> State:
        found = kproxy.respond(at)
        link = facts.links[at]
        facts = _link(facts, at, taken=link.taken - len(found), responses=(*link.responses, *found))
        return State(facts, kproxy)


def _link(facts: Facts, at: int, **changes: Any) -> Facts:
    changed = facts.links[at]._replace(**changes)
    return facts._replace(links=(changed, facts.links[1]) if at == 0 else (facts.links[0], changed))


def _read(facts: Facts, at: int) -> Facts:
    """The client reads a response: what was refused goes back to its place in the queue."""
    link = facts.links[at]
    response, rest = link.responses[0], link.responses[1:]
    facts = _link(facts, at, responses=rest)
    if response.is_success:
        return facts._replace(done="".join(sorted(facts.done + response.text)))
    return facts._replace(queue="".join(sorted(facts.queue + response.text)))


def _seen(facts: Facts) -> Facts:
    """Notes which records lie before kproxy in such a way that nobody there knows their order."""
    unordered = {one for one in facts.unordered if one[0] not in facts.log}
    for at, link in enumerate(facts.links):
        other = facts.links[1 - at]
        here = "".join(other.unread)
        unordered.update(
            (earlier, later, NETWORK) for earlier in "".join(link.sent) for later in here if earlier < later
        )
        unordered.update(
            (earlier, later, UNREAD) for earlier in "".join(link.unread) for later in here if earlier < later
        )
    return facts._replace(unordered=frozenset(unordered))


def _appended(facts: Facts, text: str) -> Facts:
    excuses = set(facts.excuses)
    wrong = facts.wrong
    for record in text:
        if record in facts.log:
            wrong = wrong or f"twice: {record}"
        for later in facts.log:
            if later > record and record not in facts.log:
                # one that was overtaken is overtaken by what follows, too
                known = {second: where for first, second, where in sorted(facts.unordered) if first == record}
                places = {where for second, where in known.items() if second in facts.log}
                if places:
                    excuses.add(NETWORK if NETWORK in places else UNREAD)
                else:
                    wrong = wrong or f"order: {later} is before {record}, which kproxy had known"
        facts = facts._replace(log=facts.log + record)
    return facts._replace(excuses=frozenset(excuses), wrong=wrong)


def broken(facts: Facts) -> Iterator[str]:
    """The promises that are broken."""
    if facts.wrong:
        yield facts.wrong
    if any(record not in facts.log for record in facts.done):
        yield "lost: an acknowledged record is not in the log"


def is_over(facts: Facts) -> bool:
    """Whether the client has nothing left to do."""
    return not facts.queue and not any(link.in_flight for link in facts.links)


class Explored(NamedTuple):
    """What an exploration found."""

    states: int
    is_cut: bool
    trace: Trace | None
    #: By exception of the order, in how many appended batches it was found.
    excuses: Mapping[str, int] = {}


def explore(scenario: Scenario, most_states: int = 200_000) -> Explored:
    """Every reachable state, up to the first broken promise: its trace is a shortest one.

    Exceptions of the order that the scenario does not name are broken promises, and so are such as it does not have.
    """
    excuses: Counter[str] = Counter()

    def moves(state: State) -> Iterator[tuple[str, State]]:
        for name, after in _Step(scenario, state).moves():
            excuses.update(after.facts.excuses - state.facts.excuses)
            yield name, after

    def wrong(state: State) -> Iterator[str]:
        yield from broken(state.facts)
        for excuse in state.facts.excuses - scenario.excuses:
            yield f"order: a record was {excuse}"

    search: Search[State] = Search(moves, wrong, most_states)
    with ExitStack() as stack:
        for kind, name, method in scenario.replaced:
            stack.enter_context(mock.patch.object(kind, name, method))
        found = search.run_to_end(
            scenario.first, lambda state: is_over(state.facts), lambda name: name.startswith(_FAULT), "stuck"
        )
    trace = found.trace
    if trace is None and not found.is_cut and scenario.excuses - set(excuses):
        trace = Trace("without the exceptions of the order that were expected", [])
    return Explored(found.states, found.is_cut, trace, excuses)


# -- rules that must fail


def _yes(*_: object, **__: object) -> bool:
    return True


def _no(*_: object, **__: object) -> bool:
    return False


def _nothing(*_: object, **__: object) -> None:
    pass


def _none(*_: object, **__: object) -> list[UnconfirmedBatch]:
    return []


def _given(_: Retries, found: object) -> object:
    """In place of ``Retries._written``: records that were refused unsent count as written."""
    return found


def _in_order_of_refusals(self: AwaitedRecords, start: int, at: int, _: float) -> bool:
    """In place of ``AwaitedRecords._gave_up``: whatever connections the responses came over."""
    return max(self._refusals[start:at]) < self._refusals[at]


def _others_before(
    self: RetryLedger,
    member: ProducerConnection,
    key: TrackKey,
    records: Digests,
    now: float,
    answer: PendingProduce,
) -> None:
    """In place of ``RetryLedger.refuse_in_order``: what other connections have untaken was sent before."""
    for other in self._at_other_brokers(member):
        other.mark_untaken()
    self._awaited_records.setdefault(key, AwaitedRecords()).refuse(
        records, now, member.sent_at, Refusal(member.origin, now, answer)
    )
    self.disturb(key)


def _others_later(self: RetryLedger, member: ProducerConnection) -> None:
    """In place of ``RetryLedger.mark_later``: what this connection has untaken has no place."""
    for other in self._at_other_brokers(member):
        other.mark_untaken()


def _waits_longer(self: ProducerConnection, key: TrackKey, other: ProducerConnection) -> bool:
    """In place of ``ProducerConnection.precedes``: what waits comes before what is unread elsewhere."""
    if any(not answer.closed and key in answer.keys for answer in self._asked):
        return True
    mine, theirs = self._waiting, other._waiting
    if mine is None or other in self._behind:
        return False
    return theirs is None or mine[0] < theirs[0]


def _began_sooner(self: ProducerConnection, other: ProducerConnection) -> bool:
    """In place of ``ProducerConnection.may_precede``: of two that wait for each other the first to wait comes first."""
    mine, theirs = self._waiting, other._waiting
    if self.is_behind and mine is not None and theirs is not None and theirs[0] < mine[0]:
        return False
    return _MAY_PRECEDE(self, other)


_MAY_PRECEDE: Final = ProducerConnection.may_precede
_MOVED: Final[dict[str, Any]] = {"moves": 1, "refusals": 1}
_BOTH: Final = frozenset((NETWORK, UNREAD))

HOLDS: Final = (
    Scenario("two requests are refused, one record is given up", refusals=2, gives=1),
    Scenario("a request is refused, and one answered late", refusals=1, late=1),
    Scenario("the leader moves", moves=1),
    Scenario("the leader moves, and the connection to it is new", moves=1, is_new=True),
    Scenario("the leader moves, and a request is answered late", moves=1, late=1),
    Scenario("the leader moves, and a request is refused", **_MOVED),
    Scenario("the leader moves, a request is refused, the connection is new", is_new=True, **_MOVED),
    Scenario("the leader moves, a request is refused, a record is given up", gives=1, **_MOVED),
    Scenario("the leader of a partition that was not used moves", excuses=frozenset((UNREAD,)), moves=1, is_used=False),
    Scenario("the leader moves in a slow network", excuses=_BOTH, moves=1, is_slow=True),
    Scenario("the leader moves and moves back", excuses=frozenset((UNREAD,)), moves=2),
    Scenario(
        "two records, the leader moves and moves back, a request is refused",
        excuses=frozenset((UNREAD,)),
        records=2,
        moves=2,
        refusals=1,
    ),
)
FLAWS: Final = (
    Scenario("nothing is awaited", "order", refusals=1, replaced=((AwaitedRecords, "admits", _yes),)),
    Scenario(
        "no record counts as given up", "stuck", refusals=1, gives=1, replaced=((AwaitedRecords, "_gave_up", _no),)
    ),
    Scenario(
        "what is left out counts as given up", "order", refusals=2, replaced=((AwaitedRecords, "_gave_up", _yes),)
    ),
    Scenario(
        "responses of two connections are read in their order",
        "order",
        size=1,
        replaced=((AwaitedRecords, "_gave_up", _in_order_of_refusals),),
        **_MOVED,
    ),
    Scenario(
        "what is unread elsewhere was sent before what is refused",
        "order",
        replaced=((RetryLedger, "refuse_in_order", _others_before),),
        **_MOVED,
    ),
    Scenario(
        "what follows a refused request has no place",
        "order",
        size=2,
        replaced=((RetryLedger, "mark_later", _others_later),),
        **_MOVED,
    ),
    Scenario("what is awaited is forgotten", "order", refusals=1, replaced=((RetryLedger, "awaits", _no),)),
    Scenario(
        "what waits comes before what is unread",
        "order",
        moves=1,
        is_new=True,
        replaced=(
            (ProducerConnection, "precedes", _waits_longer),
            (ProducerConnection, "may_precede", _began_sooner),
        ),
    ),
    Scenario(
        "what is unread is not waited for", "order", moves=1, replaced=((ProducerConnection, "may_precede", _no),)
    ),
    Scenario("open batches are not waited for", "order", moves=1, replaced=((ProducerConnection, "precedes", _no),)),
    Scenario("those that wait are not woken", "stuck", moves=1, replaced=((RetryLedger, "release", _nothing),)),
    Scenario("late responses are not compared", "twice", late=1, replaced=((RetryLedger, "candidates", _none),)),
    Scenario("what was refused counts as written", "lost", refusals=1, replaced=((Retries, "_written", _given),)),
)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--traces", is_flag=True, help="Print how each broken promise came about.")
@click.option("--most-states", default=200_000, show_default=True, help="A run ends after so many.")
def main(names: tuple[str, ...], traces: bool, most_states: int) -> None:
    """Explores the scenarios with a part of their name in NAMES, or all; exits with the number of surprises."""
    surprises = 0
    for scenario in (*HOLDS, *FLAWS):
        if names and not any(part in scenario.name for part in names):
            continue
        found = explore(scenario, most_states)
        surprises += run_scenarios([scenario], lambda _, seen=found: seen[:3], traces=traces)  # type: ignore[misc]
        for excuse, batches in sorted(found.excuses.items()):
            click.echo(f"    {excuse}: {batches} batches were appended out of order")
    sys.exit(min(surprises, 100))


if __name__ == "__main__":
    main()
