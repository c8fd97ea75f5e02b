"""Explicit-state model: which markers of fences a restarted kproxy can spare, and which it can not.

One partition, legacy clients of one identity that wait for each response and retry what they got none for, and a kproxy
that can be killed at any time. kproxy leases a producer id for each connection, and notes the lease in a durable log
before its first use. The rule: when a producer id has been given back with no batch open, kproxy notes that it is
**closed**. A restarted kproxy then reads what a closed producer id wrote, but writes no marker for it.

What a client sent may be read after its connection has ended, also after its retry. A note that a killed process had
sent may be written later.

``python -m verification.models.fences`` explores every interleaving: once with the rules, and once with each rule
replaced by one that must fail. The exit status is the number of surprises.

The broker is Kafka 4.3 as measured: it answers a batch that is among the last five of its producer id and epoch with
the offset that it has, and refuses each other sequence that does not follow, and each lower epoch. A producer id that
it does not know may begin with any sequence. Not modelled: expiry of producer ids (a day by default), compaction,
several partitions, clients that pipeline, equal records, producer ids of a former process that are leased again.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from verification.models.search import Search, Trace

REMEMBERED: Final = 5


class Rules(NamedTuple):
    """What kproxy does; each other value is a flaw that the search has to find."""

    #: For which past producer ids no marker is written: ``closed`` ones; ``unknown``: also those that the broker does
    #: not know; ``all``.
    spares: str = "closed"
    #: What is read of closed producer ids: their ``tail``, or ``nothing``.
    reads: str = "tail"
    #: When one may be noted as closed: once it is ``settled``, or at ``once`` when its connection has ended.
    closes: str = "settled"
    #: Whether the next lease of a closed producer id is ``noted`` before its first use, or ``not``.
    leases: str = "noted"


class Copy(NamedTuple):
    """One batch of one record, in flight to the broker."""

    producer_id: int
    epoch: int
    sequence: int
    payload: str


class Lane(NamedTuple):
    """A producer id of the running process."""

    producer_id: int
    epoch: int
    sequence: int
    #: The client whose connection has it; -1: none.
    holder: int = -1


class Client(NamedTuple):
    """A client: the record that it sends, and ``idle``, ``waits``, ``answered`` or ``retries``."""

    at: int = 0
    phase: str = "idle"
    #: What a connection that has ended brought, and kproxy has not read.
    orphan: str = ""


class Known(NamedTuple):
    """What the broker remembers of a producer id: sequences and offsets of its last batches."""

    epoch: int
    last: tuple[tuple[int, int], ...]


class World(NamedTuple):
    """All that there is."""

    log: tuple[tuple[str, int], ...] = ()
    broker: tuple[tuple[int, Known], ...] = ()
    network: tuple[Copy, ...] = ()
    #: By producer id: its last epoch, and whether it is closed.
    notes: tuple[tuple[int, tuple[int, bool]], ...] = ()
    generation: int = 0
    lanes: tuple[Lane, ...] = ()
    #: Batches without an outcome.
    open: tuple[Copy, ...] = ()
    #: Payloads of which this process knows that they are in the log.
    known: frozenset[str] = frozenset()
    recovered: bool = True
    #: Notes that a killed process had sent: the producer id and epoch of each that is closed.
    late: tuple[tuple[int, int], ...] = ()
    markers: int = 0
    clients: tuple[Client, ...] = (Client(),)
    kills: int = 0
    ends: int = 0
    resends: int = 0


def append(world: World, copy: Copy) -> tuple[bool, World]:
    """The broker takes a copy: whether it answers success, and what is then."""
    broker = dict(world.broker)
    known = broker.get(copy.producer_id)
    if known is not None and copy.epoch == known.epoch and copy.sequence in dict(known.last):
        return True, world
    if known is not None:
        follows = known.last[-1][0] + 1 if known.last and copy.epoch == known.epoch else 0
        if copy.epoch < known.epoch or copy.sequence != follows:
            return False, world
    last = known.last if known is not None and copy.epoch == known.epoch else ()
    broker[copy.producer_id] = Known(copy.epoch, (*last, (copy.sequence, len(world.log)))[-REMEMBERED:])
    log = (*world.log, (copy.payload, copy.producer_id))
    return True, world._replace(log=log, broker=tuple(sorted(broker.items())))


def recover(world: World, rules: Rules) -> World:
    """The first request of a process: markers for past producer ids, then what they wrote is read."""
    broker, known, markers = dict(world.broker), set(world.known), world.markers
    for producer_id, (epoch, closed) in world.notes:
        spared = rules.spares == "all" or (rules.spares == "unknown" and producer_id not in broker)
        if not (closed or spared):
            broker[producer_id] = Known(epoch + 1, ())
            markers += 1
        if not closed or rules.reads == "tail":
            known.update(payload for payload, writer in world.log if writer == producer_id)
    return world._replace(broker=tuple(sorted(broker.items())), known=frozenset(known), markers=markers, recovered=True)


def lease(world: World, holder: int, rules: Rules) -> tuple[World, int]:
    """A producer id for a connection that has none, noted; its place among the lanes."""
    for place, lane in enumerate(world.lanes):
        if lane.holder == holder >= 0:
            return world, place
    notes, lanes = dict(world.notes), list(world.lanes)
    resting = [place for place, lane in enumerate(lanes) if lane.holder < 0 and not _open_of(world, lane)]
    if resting:
        place = resting[-1]
        lane = lanes[place]._replace(epoch=lanes[place].epoch + 1, sequence=0, holder=holder)
        lanes[place] = lane
    else:
        place = len(lanes)
        lane = Lane(10 * world.generation + place, 0, 0, holder)
        lanes.append(lane)
    closed = notes.get(lane.producer_id, (0, False))[1]
    if not (closed and rules.leases == "not"):
        notes[lane.producer_id] = lane.epoch, False
    return world._replace(notes=tuple(sorted(notes.items())), lanes=tuple(lanes)), place


def accept(world: World, payload: str, holder: int, rules: Rules) -> tuple[World, str]:
    """kproxy reads a request, and what its client is in then; ``holder``: -1 if its connection has ended."""
    if not world.recovered:
        world = recover(world, rules)
    if payload in world.known:
        return world, "answered"
    if any(copy.payload == payload for copy in world.open):
        return world, "waits"
    world, place = lease(world, holder, rules)
    lane = world.lanes[place]
    copy = Copy(lane.producer_id, lane.epoch, lane.sequence, payload)
    lanes = list(world.lanes)
    lanes[place] = lane._replace(sequence=lane.sequence + 1)
    sent = world._replace(lanes=tuple(lanes), network=_sorted(*world.network, copy), open=(*world.open, copy))
    return sent, "waits"


def moves(world: World, programs: Sequence[str], rules: Rules) -> Iterator[tuple[str, World]]:
    """All that may happen next."""
    for number, program in enumerate(programs):
        yield from _of_client(world, number, program, rules)
    yield from _of_network(world, programs)
    yield from _of_kproxy(world, rules)


def _of_client(world: World, number: int, program: str, rules: Rules) -> Iterator[tuple[str, World]]:
    client = world.clients[number]
    if client.phase in ("idle", "retries") and client.at < len(program):
        payload = program[client.at]
        after, phase = accept(world, payload, number, rules)
        yield f"kproxy reads {payload}", _with(after, number, client._replace(phase=phase))
        if world.ends and not client.orphan:
            left = client._replace(phase="retries", orphan=payload)
            yield f"the connection of {payload} ends, unread", _ended(world, number, left)
    if client.phase == "answered":
        yield "the client has its answer", _with(world, number, client._replace(at=client.at + 1, phase="idle"))
    if world.ends:
        yield "the client's connection ends", _ended(world, number, client._replace(phase=_after(client)))
    if client.orphan:
        after, _ = accept(world, client.orphan, -1, rules)
        read = after.clients[number]._replace(orphan="")
        yield f"kproxy reads {client.orphan} of the ended connection", _with(after, number, read)


def _with(world: World, number: int, client: Client) -> World:
    clients = list(world.clients)
    clients[number] = client
    return world._replace(clients=tuple(clients))


def _ended(world: World, number: int, client: Client) -> World:
    """A client's connection has ended: its producer id is given back."""
    lanes = tuple(lane._replace(holder=-1) if lane.holder == number else lane for lane in world.lanes)
    return _with(world._replace(lanes=lanes, ends=world.ends - 1), number, client)


def _of_network(world: World, programs: Sequence[str]) -> Iterator[tuple[str, World]]:
    for copy in dict.fromkeys(world.network):
        network = list(world.network)
        network.remove(copy)
        success, after = append(world._replace(network=tuple(network)), copy)
        if success and copy in world.open:
            clients = tuple(
                client._replace(phase="answered")
                if client.phase == "waits" and copy.payload == program[client.at]
                else client
                for client, program in zip(world.clients, programs, strict=True)
            )
            after = after._replace(
                open=tuple(other for other in world.open if other != copy),
                known=world.known | {copy.payload},
                clients=clients,
            )
        yield f"the broker {'takes' if success else 'refuses'} {copy}", after


def _of_kproxy(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    if world.resends:
        for copy in world.open:
            sent = world._replace(network=_sorted(*world.network, copy), resends=world.resends - 1)
            yield f"kproxy sends {copy} again", sent
    closable = _closable(world, rules)
    for producer_id, epoch in (*closable, *world.late):
        late = tuple(note for note in world.late if note != (producer_id, epoch))
        notes = tuple(sorted((dict(world.notes) | {producer_id: (epoch, True)}).items()))
        yield f"{producer_id} is noted as closed", world._replace(notes=notes, late=late)
    if world.kills:
        yield (
            "kproxy is killed and started",
            world._replace(
                generation=world.generation + 1,
                lanes=(),
                open=(),
                known=frozenset(),
                recovered=False,
                late=(*world.late, *closable),
                clients=tuple(Client(client.at, _after(client)) for client in world.clients),
                kills=world.kills - 1,
            ),
        )


def _closable(world: World, rules: Rules) -> list[tuple[int, int]]:
    """The producer ids that kproxy may note as closed, with their epochs."""
    notes = dict(world.notes)
    return [
        (lane.producer_id, lane.epoch)
        for lane in world.lanes
        if lane.holder < 0 and not notes[lane.producer_id][1] and (rules.closes == "once" or not _open_of(world, lane))
    ]


def _after(client: Client) -> str:
    """A client's phase once its connection has ended."""
    return "retries" if client.phase in ("waits", "answered", "retries") else client.phase


def _open_of(world: World, lane: Lane) -> list[Copy]:
    return [copy for copy in world.open if copy.producer_id == lane.producer_id]


def _sorted(*copies: Copy) -> tuple[Copy, ...]:
    return tuple(sorted(copies))


def broken(world: World, programs: Sequence[str]) -> Iterator[str]:
    """The promises that are broken: an acknowledged record is not in the log, or a record is there twice."""
    held = Counter(payload for payload, _ in world.log)
    if any(
        not held[payload]
        for client, program in zip(world.clients, programs, strict=True)
        for payload in program[: client.at]
    ):
        yield "lost"
    if any(count > 1 for count in held.values()):
        yield "twice"


class Explored(NamedTuple):
    """What an exploration found."""

    states: int
    trace: Trace | None
    #: Whether a restarted kproxy continued without any marker in some run.
    spared: bool


def explore(
    rules: Rules, programs: Sequence[str] = ("ab",), *, kills: int = 2, ends: int = 2, resends: int = 1
) -> Explored:
    """Every reachable state, breadth-first, up to the first broken promise: its trace is a shortest one.

    ``programs``: the records of each client, all different.
    """
    spared = False

    def wrong(world: World) -> Iterator[str]:
        nonlocal spared
        spared = spared or (world.generation > 0 and world.recovered and bool(world.log) and not world.markers)
        return broken(world, programs)

    search: Search[World] = Search(lambda world: moves(world, programs, rules), wrong, sys.maxsize)
    clients = tuple(Client() for _ in programs)
    found = search.run(World(clients=clients, kills=kills, ends=ends, resends=resends), "")
    return Explored(found.states, found.trace, spared)


#: Each rule replaced by one that must fail, and why.
FLAWS: Final = {
    Rules(spares="all"): "an old copy is appended after the tail was read",
    Rules(spares="unknown"): "the first batch of a producer id is still in flight",
    Rules(reads="nothing"): "the client has not received the answer of the last batch",
    Rules(closes="once"): "a batch without an outcome is appended later",
    Rules(leases="not"): "the producer id was used again after it was closed",
}


def main() -> int:
    """Prints what was found; the number of surprises."""
    surprises = 0
    for rules, text in {Rules(): "the rules", **FLAWS}.items():
        found = explore(rules)
        sys.stdout.write(f"{text}: {found.states} states, {found.trace.invariant if found.trace else 'holds'}\n")
        for step in found.trace.steps if found.trace else ():
            sys.stdout.write(f"    {step}\n")
        surprises += (found.trace is None) != (rules == Rules())
    return surprises


if __name__ == "__main__":
    sys.exit(main())
