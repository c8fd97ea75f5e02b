"""Explicit-state model: what a proxy may conclude from TCP about what a client has received, and whose retry comes.

An acknowledgement is an event of its own: it says that the client's *kernel* has a response, and may be late or lost.
A program that closes a socket with unread bytes resets the connection; otherwise it sends a FIN, which carries the last
acknowledgement, as each request does. A connection may die: nothing arrives any more, the program may still read what
its kernel has, gives up in the end, and kproxy notices whenever its own kernel gives up. A program may also die. What a
program writes waits in its kernel and in the network for as long as it likes.

The rules are kproxy's own (``kproxy.dedup.retry_rules.Rules``); the model asks them and does what
``ProducerConnection`` and ``RetryLedger`` do with the result, for one partition and requests of one record.
``python -m verification.models.evidence`` explores every interleaving of each scenario, and each rule replaced by one
that must fail. The exit status is the number of surprises.

Taken for granted: a live program has read what its kernel has after a second in which it sent nothing. A client that
keeps one connection closes it before it opens the next. Not modelled: the broker (each accepted batch is in the log),
kproxy's death, time-outs of kproxy itself, several partitions.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.origin import Origin, Silence
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import PendingProduce, Stamp, UnconfirmedBatch
from verification.models.scenario_runs import run_scenarios
from verification.models.search import Search, Trace

#: The time at which all happens: only what the rules say of an end in good order depends on times.
_NOW: Final = 1.0
_WINDOW: Final = 120.0
_KEY: Final = (b"t", 0)
_SILENT: Final = Silence(0.0, 1.0)

Payload = tuple[str, int]
"""Content and timestamp of a record."""
RecordId = tuple[int, int]
"""The number of its program, and its place there."""


class Sent(NamedTuple):
    """On the way to kproxy: a request, or the end of the connection; and how many responses its kernel had then."""

    what: RecordId | str
    arrived: int


class Pending(NamedTuple):
    """A request of which kproxy does not know that its response was received."""

    record: RecordId
    #: The tick at which the response was given, and its number among those of the connection; 0: not yet.
    at: int = 0
    position: int = 0
    #: ``PendingProduce.arrived_with``; 0: it is not known to have arrived.
    arrived_with: int = 0
    #: It had arrived before a silence of the client; after a request that ended it ``PendingProduce.timed_only``; and
    #: the program has run for a second since.
    quiet: bool = False
    timed_only: bool = False
    ran: bool = False


class Conn(NamedTuple):
    """A connection: what is in flight, and what each side knows."""

    program: int
    up: tuple[Sent, ...] = ()
    down: tuple[RecordId, ...] = ()
    #: In the client's kernel, unread.
    unread: tuple[RecordId, ...] = ()
    #: Responses that the client's kernel has had; those of which kproxy has the acknowledgement.
    arrived: int = 0
    acknowledged: int = 0
    #: The program has it open; the network delivers; kproxy knows that it has ended.
    is_open: bool = True
    delivers: bool = True
    #: What is in flight may arrive much later, also after what is sent over another connection.
    stalled: bool = False
    ended: bool = False
    accepted: int = 0
    pending: tuple[Pending, ...] = ()
    first_at: float = inf
    used_at: float = 0.0
    heard_at: float = 0.0


class Program(NamedTuple):
    """A client program; the records of ``Scenario.programs`` are those it sends."""

    next: int = 0
    conn: int = -1
    flight: tuple[RecordId, ...] = ()
    retries: tuple[RecordId, ...] = ()


class Entry(NamedTuple):
    """An unconfirmed record."""

    record: RecordId
    sure: bool
    clean: bool
    timed_only: bool
    origin: int


class World(NamedTuple):
    """All that there is."""

    programs: tuple[Program, ...]
    conns: tuple[Conn, ...] = ()
    log: tuple[Payload, ...] = ()
    entries: tuple[Entry, ...] = ()
    sent: frozenset[RecordId] = frozenset()
    read: frozenset[RecordId] = frozenset()
    tick: int = 1
    cuts: int = 0
    stalls: int = 0
    silences: int = 0
    losses: int = 0
    deaths: int = 0
    gives: int = 0
    #: Retries that were taken while kproxy could not know that the connection before had ended: half-open.
    excused: frozenset[RecordId] = frozenset()


@dataclass(frozen=True)
class Scenario:
    """Programs of one client.id, what may happen to them, and what must be found."""

    name: str
    #: The payloads that each program sends.
    programs: tuple[tuple[Payload, ...], ...]
    rules: Rules
    flaw: str | None = None
    #: Requests that a program sends before it reads a response, and as many as kproxy expects.
    depth: int = 1
    expected: int = 1
    #: Each record is sent by a process of its own, over a connection of its own.
    one_each: bool = False
    #: How often a connection is cut, or stalls; a second of silence passes; a relay loses a response and closes in good
    #: order; a program dies; or has no response in time, closes its connection, and retries over another one.
    cuts: int = 0
    stalls: int = 0
    silences: int = 0
    losses: int = 0
    deaths: int = 0
    gives: int = 0
    #: Of a relay that was declared.
    clean_window: float = 0.0
    #: Programs read each response as soon as their kernel has it.
    reads_at_once: bool = False
    #: Both programs have a connection that was used, and on which a response arrived after both were.
    warm: bool = False
    #: Replaced in the model itself.
    fault: str = ""

    def payload(self, record: RecordId) -> Payload:
        """What a record holds."""
        return self.programs[record[0]][record[1]]

    @property
    def ticks_matter(self) -> bool:
        """Whether connections may be in use at the same time."""
        return self.warm or self.stalls > 0

    @property
    def first(self) -> World:
        """Before anything was sent; with ``warm`` both connections were used."""
        names = ("cuts", "stalls", "silences", "losses", "deaths", "gives")
        budget: dict[str, Any] = {name: getattr(self, name) for name in names}
        if not self.warm:
            return World(tuple(Program() for _ in self.programs), **budget)
        programs = tuple(Program(conn=at) for at in range(len(self.programs)))
        conns = tuple(
            Conn(at, arrived=1, acknowledged=1, accepted=1, first_at=at + 1, used_at=at + 1, heard_at=8)
            for at in range(len(programs))
        )
        return World(programs, conns, tick=9, **budget)


class _Step:
    """What happens next in one state."""

    def __init__(self, scenario: Scenario, world: World) -> None:
        self.scenario, self.world, self.rules = scenario, world, scenario.rules

    def moves(self) -> Iterator[tuple[str, World]]:
        for number, program in enumerate(self.world.programs):
            yield from self._of_program(number, program)
        for number, conn in enumerate(self.world.conns):
            yield from self._of_network(number, conn)
            yield from self._of_kproxy(number, conn)

    # -- the client

    def _of_program(self, number: int, program: Program) -> Iterator[tuple[str, World]]:
        yield from self._sends(number, program)
        if program.conn < 0:
            return
        conn = self.world.conns[program.conn]
        if conn.unread:
            yield f"{number} reads the response to {conn.unread[0]}", self.read(number)
        if program.flight and (self.world.gives or not conn.delivers):
            left = program._replace(retries=program.flight + program.retries, flight=(), conn=-1)
            after = _program(self._closed(program.conn), number, left)
            yield f"{number} gives up {program.conn}", after._replace(gives=after.gives - conn.delivers)
        if self.scenario.one_each and not (program.flight or program.retries):
            yield (
                f"{number} ends in good order",
                _program(self._closed(program.conn), number, program._replace(conn=-1)),
            )
        if self.world.deaths and (program.flight or program.retries):
            after = _program(self._closed(program.conn), number, Program(program.next))
            yield f"{number} dies, and is started again", after._replace(deaths=self.world.deaths - 1)

    def read(self, number: int) -> World:
        """A program reads the next response that its kernel has."""
        program = self.world.programs[number]
        conn = self.world.conns[program.conn]
        after = self._conn(program.conn, conn._replace(unread=conn.unread[1:]))
        flight = tuple(one for one in program.flight if one != conn.unread[0])
        after = _program(after, number, program._replace(flight=flight))
        return after._replace(read=after.read | {conn.unread[0]})

    def _sends(self, number: int, program: Program) -> Iterator[tuple[str, World]]:
        records = self.scenario.programs[number]
        is_new = not program.retries
        if len(program.flight) >= self.scenario.depth or (is_new and program.next >= len(records)):
            return
        if self.scenario.one_each and is_new and program.conn >= 0:
            return
        world, record = self.world, program.retries[0] if program.retries else (number, program.next)
        if program.conn < 0:
            world = world._replace(conns=(*world.conns, Conn(number)))
            program = program._replace(conn=len(world.conns) - 1)
        conn = world.conns[program.conn]
        up = (*conn.up, Sent(record, conn.arrived)) if conn.delivers else conn.up
        world = _conn(world, program.conn, conn._replace(up=up))
        program = program._replace(
            flight=(*program.flight, record), retries=program.retries[1:], next=program.next + is_new
        )
        yield (
            f"{number} sends {record} over {program.conn}",
            _program(world, number, program)._replace(sent=world.sent | {record}),
        )

    def _closed(self, at: int) -> World:
        """The program closes a connection: with a reset if there are unread bytes."""
        conn = self.world.conns[at]
        up = conn.up
        if conn.delivers:
            up = (Sent("RST", conn.acknowledged),) if conn.unread else (*up, Sent("FIN", conn.arrived))
        return self._conn(at, conn._replace(is_open=False, unread=(), up=up))

    # -- the network

    def _of_network(self, at: int, conn: Conn) -> Iterator[tuple[str, World]]:
        if conn.down and conn.delivers:
            left = conn._replace(down=conn.down[1:])
            if not conn.is_open:
                yield f"a response meets no socket of {at}", self._conn(at, left._replace(up=(Sent("RST", 0),)))
            else:
                left = left._replace(unread=(*conn.unread, conn.down[0]), arrived=conn.arrived + 1)
                after = self._conn(at, left)
                if self.scenario.reads_at_once:
                    after = _Step(self.scenario, after).read(conn.program)
                yield f"a response arrives in the kernel of {at}", after
        if conn.delivers and not conn.ended and conn.acknowledged < conn.arrived:
            yield f"kproxy has the acknowledgement of {at}", self._conn(at, conn._replace(acknowledged=conn.arrived))
        if self.world.cuts and conn.delivers and not conn.ended:
            dead = conn._replace(delivers=False, up=(), down=())
            yield f"{at} is cut", self._conn(at, dead)._replace(cuts=self.world.cuts - 1)
        if self.world.stalls and conn.delivers and not (conn.ended or conn.stalled):
            stalled = conn._replace(stalled=True)
            yield f"{at} stalls", self._conn(at, stalled)._replace(stalls=self.world.stalls - 1)
        if self.world.silences and conn.is_open and not conn.up:
            pending = tuple(self._silent(one, conn) for one in conn.pending)
            after = self._conn(at, conn._replace(pending=pending))
            stands = ", which stands still" if conn.unread else ""
            yield f"a second passes without a request of {at}{stands}", after._replace(silences=self.world.silences - 1)
        if self.world.losses and conn.down and conn.is_open and not conn.ended:
            yield f"a relay loses a response of {at} and closes", self._lost(at, conn)

    def _silent(self, pending: Pending, conn: Conn) -> Pending:
        looked = self._look(pending, conn)
        quiet = bool(looked.arrived_with) or self.scenario.fault == "silence without arrival"
        return looked._replace(quiet=quiet, ran=looked.timed_only and not conn.unread)

    def _lost(self, at: int, conn: Conn) -> World:
        """The relay had acknowledged the responses; both ends see a FIN."""
        number = conn.program
        program = self.world.programs[number]
        after = self._end(at, conn._replace(acknowledged=conn.arrived + len(conn.down), is_open=False), reset=False)
        left = program._replace(retries=program.flight + program.retries, flight=(), conn=-1)
        return _program(after, number, left)._replace(losses=self.world.losses - 1)

    # -- kproxy

    def _of_kproxy(self, at: int, conn: Conn) -> Iterator[tuple[str, World]]:
        if conn.ended:
            return
        if not conn.delivers:
            yield f"kproxy's kernel gives {at} up", self._end(at, conn, reset=True)
        elif conn.up:
            sent = conn.up[0]
            after = conn._replace(up=conn.up[1:], acknowledged=max(conn.acknowledged, sent.arrived))
            if isinstance(sent.what, str):
                yield f"kproxy sees the {sent.what} of {at}", self._end(at, after, reset=sent.what == "RST")
            elif not any(self._precedes(other, conn) for other in self.world.conns[:at]):
                yield f"kproxy takes {sent.what} of {at}", self._take(at, after, sent.what)
        unanswered = [one for one in conn.pending if not one.at]
        if unanswered:
            yield f"kproxy answers {unanswered[0].record} of {at}", self._answer(at, conn, unanswered[0])

    def _precedes(self, other: Conn, conn: Conn) -> bool:
        """What a program sent over the connection that it had before arrives first, unless that is cut."""
        return other.program == conn.program and bool(other.up) and not other.stalled

    def _answer(self, at: int, conn: Conn, pending: Pending) -> World:
        position = 1 + sum(1 for one in conn.pending if one.at) + (conn.accepted - len(conn.pending))
        given = pending._replace(at=self.world.tick, position=position)
        rest = tuple(given if one is pending else one for one in conn.pending)
        down = (*conn.down, pending.record) if conn.delivers else conn.down
        return self._conn(at, conn._replace(pending=rest, down=down))._replace(tick=self.world.tick + 1)

    def _answer_of(self, pending: Pending) -> PendingProduce:
        arrived_at = 0.0 if pending.quiet else 1.0 if pending.arrived_with else inf
        at = _NOW if pending.at else 0.0
        return PendingProduce(
            (), inf, at=at, position=pending.position, arrived_with=pending.arrived_with, arrived_at=arrived_at
        )

    def _look(self, pending: Pending, conn: Conn) -> Pending:
        """Whether a response has arrived, as far as kproxy knows."""
        answer, is_direct = self._answer_of(pending), not self.scenario.clean_window
        if pending.arrived_with or not pending.at:
            return pending
        if not self.rules.has_arrived(answer, conn.acknowledged, _NOW, is_direct=is_direct):
            return pending
        return pending._replace(arrived_with=conn.accepted + 1)

    def _take(self, at: int, conn: Conn, record: RecordId) -> World:
        number = conn.accepted + 1
        looked = [self._judged(self._look(one, conn)) for one in conn.pending]
        kept = tuple(one for one in looked if not (one.arrived_with and self._is_received(one, number)))
        conn = conn._replace(pending=(*kept, Pending(record)), accepted=number, used_at=self.world.tick)
        conn = _heard(conn._replace(first_at=min(conn.first_at, self.world.tick)))
        entry = self._match(at, conn, record)
        world = _conn(self.world, at, conn)._replace(tick=self.world.tick + 1)
        others = (other for number, other in enumerate(self.world.conns) if number != at and not other.ended)
        if any(record in {one.record for one in other.pending} | {one.what for one in other.up} for other in others):
            world = world._replace(excused=world.excused | {record})
        if entry is not None:
            return world._replace(entries=tuple(one for one in world.entries if one is not entry))
        return world._replace(log=tuple(sorted((*world.log, self.scenario.payload(record)))))

    def _is_received(self, pending: Pending, number: int) -> bool:
        answer = self._answer_of(pending)
        by_requests = self.rules.received_by_requests(answer, number, self.scenario.expected)
        ran = pending.ran or self.scenario.fault == "runs while it is silent"
        return by_requests or (ran and self.rules.likely_read_in_silence(answer, _SILENT))

    def _judged(self, pending: Pending) -> Pending:
        """By the request that has arrived, which may have ended a silence."""
        timed_only = self.rules.likely_read_in_silence(self._answer_of(pending), _SILENT)
        return pending._replace(timed_only=pending.timed_only or timed_only)

    def _match(self, at: int, conn: Conn, record: RecordId) -> Entry | None:
        """The entry that a request repeats: the newest, those that were surely not received before others."""
        before, content = self.world.conns[at], self.scenario.payload(record)
        # of one that stalls nobody knows when its requests were there, only when they were read
        used = self._origin(at, before._replace(heard_at=conn.heard_at), asked_at=self.world.tick)
        for entry in reversed(sorted(self.world.entries, key=lambda one: one.sure)):
            theirs = self.scenario.payload(entry.record)
            if theirs[0] != content[0]:
                continue
            origin = self._origin(entry.origin, self.world.conns[entry.origin])
            if self.rules.is_of_another_program(origin, used):
                continue
            batch = UnconfirmedBatch(_KEY, _STAMP, 1, entry.sure, entry.clean, 0.0, taken_at=_NOW, origin=origin)
            batch.timed_only = entry.timed_only
            if self.rules.times_agree(batch, _digest(theirs), _digest(content), _NOW):
                return entry
        return None

    def _origin(self, at: int, conn: Conn, *, asked_at: float = 0.0) -> Origin:
        return Origin(
            opened_at=at,
            asked_at=asked_at,
            clean_window=self.scenario.clean_window,
            node_id=1,
            first_at=conn.first_at,
            used_at=conn.used_at,
            heard_at=conn.heard_at,
        )

    def _end(self, at: int, conn: Conn, *, reset: bool) -> World:
        conn = _heard(conn)
        handed_over = max((one.position for one in conn.pending), default=0)
        if self.scenario.fault == "unacknowledged is not received":
            handed_over = conn.acknowledged
        entries = []
        for one in conn.pending:
            answer = self._answer_of(one)
            sure = not one.at or self.rules.surely_not_received(answer, handed_over)
            outrun = any(other.accepted for other in self.world.conns[at + 1 :])
            sure = sure and not self.rules.may_be_answered_since(outrun=outrun)
            position = self.rules.telling_position(answer)
            clean = bool(one.at) and self.rules.received_by_end(position, conn.acknowledged, closed_well=not reset)
            entries.append(Entry(one.record, sure, clean, one.timed_only, at))
        world = self._conn(at, conn._replace(ended=True, pending=(), up=(), down=()))
        return world._replace(entries=(*world.entries, *entries))

    def _conn(self, at: int, conn: Conn) -> World:
        return _conn(self.world, at, conn)


_STAMP: Final = Stamp(1, 0, 0, 0, 1)


def _digest(payload: Payload) -> Digest:
    return Digest(payload[0].encode(), payload[1])


def _heard(conn: Conn) -> Conn:
    heard = [one.at for one in conn.pending if one.at and one.position <= conn.acknowledged]
    return conn._replace(heard_at=max([conn.heard_at, *heard]))


def _conn(world: World, at: int, conn: Conn) -> World:
    conns = list(world.conns)
    conns[at] = conn
    return world._replace(conns=tuple(conns))


def _normal(world: World, *, ticks_matter: bool) -> World:
    """The same world with the ticks that matter counted from 1, and without what no rule asks for any more."""
    conns = [_ended(conn, at, world) for at, conn in enumerate(world.conns)]
    if not ticks_matter:
        conns = [
            conn._replace(
                pending=tuple(one._replace(at=min(one.at, 1)) for one in conn.pending),
                first_at=inf,
                used_at=0.0,
                heard_at=0.0,
            )
            for conn in conns
        ]
    ticks: set[float] = {one.at for conn in conns for one in conn.pending}
    ticks.update(tick for conn in conns for tick in (conn.first_at, conn.used_at, conn.heard_at))
    rank = {tick: number for number, tick in enumerate(sorted(ticks - {0, inf}), 1)}
    rank[0] = 0

    def ranked(conn: Conn) -> Conn:
        pending = tuple(one._replace(at=rank[one.at]) for one in conn.pending)
        first_at = inf if conn.first_at == inf else rank[conn.first_at]
        return conn._replace(
            pending=pending, first_at=first_at, used_at=rank[conn.used_at], heard_at=rank[conn.heard_at]
        )

    return world._replace(conns=tuple(map(ranked, conns)), tick=len(rank))


def _ended(conn: Conn, at: int, world: World) -> Conn:
    if not conn.ended or conn.is_open:
        return conn
    if any(entry.origin == at for entry in world.entries):
        return conn._replace(arrived=0, acknowledged=0, up=(), down=())
    return Conn(conn.program, is_open=False, ended=True, accepted=min(conn.accepted, 1), delivers=False)


def _program(world: World, at: int, program: Program) -> World:
    programs = list(world.programs)
    programs[at] = program
    return world._replace(programs=tuple(programs))


def broken(scenario: Scenario, world: World) -> Iterator[str]:
    """The promises that are broken, by payload: equal records are told apart by nobody."""
    held = Counter(world.log)
    sent = Counter(map(scenario.payload, world.sent))
    read = Counter(map(scenario.payload, world.read))
    if any(held[payload] < count for payload, count in read.items()):
        yield "lost: an acknowledged record is not in the log"
    excused = Counter(map(scenario.payload, world.excused))
    if any(count > sent[payload] + excused[payload] for payload, count in held.items()):
        yield "twice: a retry is written"


class Explored(NamedTuple):
    """What an exploration found."""

    states: int
    is_cut: bool
    trace: Trace | None


def explore(scenario: Scenario, most_states: int = 400_000) -> Explored:
    """Every reachable state, up to the first broken promise: its trace is a shortest one."""
    search: Search[World] = Search(
        lambda world: (
            (name, _normal(after, ticks_matter=scenario.ticks_matter)) for name, after in _Step(scenario, world).moves()
        ),
        lambda world: broken(scenario, world),
        most_states,
    )
    found = search.run(scenario.first, "")
    return Explored(found.states, found.is_cut, found.trace)


def _rules(**replaced: Any) -> Rules:
    """kproxy's rules, some of them replaced."""
    kind: type[Rules] = type("Replaced", (Rules,), {name: staticmethod(rule) for name, rule in replaced.items()})
    return kind(window=_WINDOW, in_flight=None, client_timeout=60.0)


def _no(*_: Any, **__: Any) -> bool:
    return False


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _untimed(text: str) -> tuple[Payload, ...]:
    return tuple((letter, UNTIMED) for letter in text)


def _timed(text: str) -> tuple[Payload, ...]:
    return tuple((letter, at) for at, letter in enumerate(text, 1))


def _in_use_by_requests(left: Origin, used: Origin) -> bool:
    """The request of one was accepted after the first of the other: of a half-open connection, too."""
    return used.first_at < left.used_at


_EACH: Final[dict[str, Any]] = {"programs": (_untimed("aa"),), "one_each": True, "deaths": 1, "gives": 2}
_CUT: Final[dict[str, Any]] = {"programs": (_timed("aa"),), "cuts": 1, "gives": 1}
_DEEP: Final[dict[str, Any]] = {"programs": (_timed("abc"),), "depth": 3, "expected": 3, "cuts": 1}
_PROMPT: Final[dict[str, Any]] = {**_DEEP, "expected": 1, "reads_at_once": True}
_SLOW: Final[dict[str, Any]] = {"programs": (_timed("abc"),), "depth": 2, "expected": 9, "cuts": 1, "silences": 2}
_RELAY: Final[dict[str, Any]] = {"programs": (_untimed("abc"),), "losses": 3}
_TWO: Final[dict[str, Any]] = {"programs": ((("a", 5),), (("a", 5),)), "warm": True, "cuts": 1}
_HALF_OPEN: Final[dict[str, Any]] = {"programs": (_timed("ab"),), "depth": 2, "expected": 9, "stalls": 1, "gives": 1}

HOLDS: Final = tuple(
    Scenario(name, rules=_rules(), **facts)
    for name, facts in {
        "one process for each of two equal records": _EACH,
        "a connection is cut": _CUT,
        "three requests in flight": _DEEP,
        "a depth that nobody knows, of a program that reads at once": _PROMPT,
        "requests after a silence": _SLOW,
        "a declared relay loses responses": {**_RELAY, "clean_window": 10.0},
        "two programs with one client.id": _TWO,
        "half-open": _HALF_OPEN,
    }.items()
)
FLAWS: Final = (
    Scenario(
        "equal records stay comparable after an end in good order",
        rules=_rules(untimed_until=lambda _: inf),
        flaw="lost",
        **_EACH,
    ),
    Scenario(
        "a FIN shows that all responses were received",
        rules=_rules(received_by_end=lambda position, acknowledged, *, closed_well: closed_well),
        flaw="twice",
        **_EACH,
    ),
    Scenario(
        "what the kernel acknowledged was received, also before a reset",
        rules=_rules(received_by_end=lambda position, acknowledged, *, closed_well: position <= acknowledged),
        flaw="twice",
        **_EACH,
    ),
    Scenario(
        "what is not acknowledged was not received",
        rules=_rules(),
        fault="unacknowledged is not received",
        flaw="lost",
        **_CUT,
    ),
    Scenario(
        "what had no response over a connection had none over a newer one",
        rules=_rules(may_be_answered_since=_no),
        flaw="lost",
        **_CUT,
    ),
    Scenario("what is written has arrived", rules=_rules(has_arrived=_yes), flaw="twice", **_PROMPT),
    Scenario(
        "a client has fewer requests in flight than it has", rules=_rules(), flaw="twice", **{**_DEEP, "expected": 1}
    ),
    Scenario(
        "a request after an acknowledgement shows that the response was read",
        rules=_rules(likely_read_in_silence=lambda answer, _: answer.arrived_at < inf),
        fault="runs while it is silent",
        flaw="twice",
        **_SLOW,
    ),
    Scenario(
        "a program that was silent was running",
        rules=_rules(),
        fault="runs while it is silent",
        flaw="twice",
        **_SLOW,
    ),
    Scenario(
        "a silence shows that all responses were read",
        rules=_rules(has_arrived=_yes),
        fault="silence without arrival",
        flaw="twice",
        **{**_SLOW, "depth": 3},
    ),
    Scenario("nobody has declared the relay", rules=_rules(), flaw="twice", **_RELAY),
    Scenario(
        "any connection of a client.id may bring a retry", rules=_rules(is_of_another_program=_no), flaw="lost", **_TWO
    ),
    Scenario(
        "a connection is in use while its requests arrive",
        rules=_rules(is_of_another_program=_in_use_by_requests),
        flaw="twice",
        **_HALF_OPEN,
    ),
)


def main(scenarios: Sequence[Scenario] = (*HOLDS, *FLAWS)) -> int:
    """Prints what was found; the number of surprises."""
    return run_scenarios(scenarios, lambda scenario: explore(scenario))


if __name__ == "__main__":
    sys.exit(main())
