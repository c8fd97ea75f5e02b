"""Explicit-state model: a retry that reaches another kproxy, while the first one may be alive.

Two instances, one partition, one producer identity. A client waits for each answer and retries what it got none for: at
the same instance or at the other one. Or two clients share the identity, one at each instance. An instance leases a
producer id for each connection and notes the lease in a log that both can read to its end.

``python -m verification.models.fleet`` explores every interleaving: with the rules, and with each rule replaced by one
that must fail. The exit status is the number of surprises.

- **Network**: a batch arrives at any time, also after its instance was killed; it may be sent twice.
- **Connections**: what a client sent may be read long after it has gone; an instance may never see that it has.
- **Broker**: as in ``fences``: it knows its last batches again, and refuses a producer id after its fence.
- **Killed** instances come back at once under their name, and remember nothing but the notes.
- **lost**: acknowledged and not in the log. **twice**: in the log two times. **for ever**: two clients that share an
  identity, at one instance each, keep ending each other's connections.

An identity is shared if a fenced connection brings a request that its client sent after the lease of the instance that
fenced it: a client that failed over sends nothing more over its former connection. An instance does not know which
lease fenced it: it takes any newer one that another instance holds. From then on neither instance fences the other.
What that costs is not searched: a client that fails over while its identity counts as shared, and leaves an open batch.

An instance lists what is in doubt: payloads that it knows to be in the log, and of which it does not know that their
client has the answer, whichever producer id wrote them. A note is written with the list as it is then; the newest list
of each instance counts. Of a producer id that was given back before a connection was opened, that connection compares
with the list alone. One that was opened before may bring what its client sent before it came to the other instance, and
has received an answer to there: for it all is read.

A record's letter is its content, its case its time: ``a`` and ``A`` are equal records of different times.

Not modelled: several partitions, pipelining, leases of one producer id under later epochs (``fences`` has those), notes
that are lost with their topic, and time. Nor equal records without times, of which one that follows a move counts as a
retry. Without time an instance may fence at once; the bounded wait for the other to give its producer ids back spares
fences, and keeps nothing out. And two clients can meet for ever between lease and first batch: the search ends at a
number of notes.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from verification.models.search import Found, Search

#: More fences of connections whose client was alive than the rules can need.
FOR_EVER: Final = 3
#: The instance that died before the first step.
_DEAD: Final = 2


class Rules(NamedTuple):
    """What an instance does; each other value is a flaw that the search has to find."""

    #: A lease is noted ``before`` the notes of others are read, or ``after``.
    announce: str = "before"
    #: The notes are read to their ``end`` for each lease, or are as they were at the one before (``cached``).
    look: str = "end"
    #: A producer id that another instance holds is fenced (``fence``), or its batches are only ``read``.
    held: str = "fence"
    #: What is done first: ``fence``, or ``read``.
    first: str = "fence"
    #: The log is read to its end after the ``fence``, or as far as it went at the ``look``.
    tail: str = "fence"
    #: Records are equal if their contents and ``times`` are, or their ``contents``.
    equal: str = "times"
    #: What is compared of a producer id that was given back: the ``list``, and all where the connection may bring older
    #: requests; all that it wrote (``read``); the list alone (``list only``), or nothing (``ignore``).
    returned: str = "list"
    #: A list has what is in doubt at its ``instance``, or what was written under the ``lane`` of its note.
    lists: str = "instance"
    #: A process that takes the place of another one takes over the list of that one (``take``), or begins without one
    #: (``forget``).
    successor: str = "take"
    #: A producer id is given back when all its batches are ``settled``, or at ``once`` when its connection has ended.
    returns: str = "settled"
    #: An instance that meets a fence ends the connection (``ends``), or sends the batch under the next id (``again``).
    refused: str = "ends"
    #: After how many fences of live connections an identity counts as shared; 0: never.
    shared: int = 1
    #: A fenced connection counts as live if its client sent the request after a ``newer`` lease that another instance
    #: holds, after any that one ``held``, or always (``any``).
    evidence: str = "newer"


class Copy(NamedTuple):
    """One batch of one record, in flight to the broker."""

    producer_id: int
    sequence: int
    payload: str


class Note(NamedTuple):
    """A lease, by the order of the notes; its place is the producer id."""

    instance: int
    held: bool = True
    shared: bool = False


class Known(NamedTuple):
    """What the broker remembers of a producer id: (sequence, offset) of batches, and the lease that fenced it."""

    batches: tuple[tuple[int, int], ...] = ()
    fenced_for: int = -1


class Connection(NamedTuple):
    """A client's connection to an instance."""

    instance: int
    client: int
    #: The client has not left it, and it was not closed by its instance.
    up: bool = True
    #: The request that was not taken yet, with the number of notes when it was sent.
    request: tuple[str, int] | None = None
    #: ``new``, ``leased``, ``looked``, ``half`` (fenced or read, not both), ``ready``, ``ended``.
    stage: str = "new"
    producer_id: int = -1
    sequence: int = 0
    #: What has to be fenced, and what read, before its first batch.
    fences: frozenset[int] = frozenset()
    reads: frozenset[int] = frozenset()
    #: Producer ids that had been given back when it was opened.
    before: frozenset[int] = frozenset()
    #: The payload that was answered last, or will be.
    last: str = ""
    #: The end of the log at the look, where that matters (``Rules.tail``).
    end: int = 0
    #: The request whose batch is open, or waits for one that is.
    waits: tuple[str, int] | None = None
    answered: bool = False


class Instance(NamedTuple):
    """One kproxy."""

    #: Leases that are of this process and not abandoned.
    live: frozenset[int] = frozenset()
    #: Payloads that it knows to be in the log, and those of which no client has surely received the answer.
    known: frozenset[str] = frozenset()
    doubts: frozenset[str] = frozenset()
    #: Batches without an outcome.
    open: tuple[Copy, ...] = ()
    #: The notes at its last look, where that matters (``Rules.look``).
    seen: tuple[Note, ...] = ()
    fenced: int = 0
    shared: bool = False


class World(NamedTuple):
    """All that there is."""

    log: tuple[tuple[str, int], ...] = ()
    broker: tuple[tuple[int, Known], ...] = ()
    network: tuple[Copy, ...] = ()
    notes: tuple[Note, ...] = ()
    #: By instance, the list in the note that it wrote last.
    lists: tuple[frozenset[str], ...] = (frozenset(), frozenset())
    instances: tuple[Instance, ...] = (Instance(), Instance())
    connections: tuple[Connection, ...] = ()
    #: By client: how many of its records are acknowledged.
    at: tuple[int, ...] = (0,)
    #: Fences of connections whose client was alive.
    fights: int = 0
    moves: int = 0
    kills: int = 0
    stops: int = 0
    resends: int = 0


class Scenario(NamedTuple):
    """How far to search."""

    #: The records of each client; with two clients each stays at its own instance.
    programs: tuple[str, ...] = ("ab",)
    #: How often the client fails over, or reconnects; how often an instance is killed, or stops in good order, and a
    #: batch is sent again.
    moves: int = 2
    kills: int = 0
    stops: int = 0
    resends: int = 0
    #: No client does more once there are so many notes.
    notes: int = 8
    #: A third instance died long ago, and still holds its lease.
    dead: bool = False


Steps = Iterator[tuple[str, World]]


def steps_of(world: World, scenario: Scenario, rules: Rules) -> Steps:
    """All that may happen next."""
    yield from _of_clients(world, scenario)
    for number, connection in enumerate(world.connections):
        if connection.stage != "ended":
            yield from _of_connection(world, number, connection, rules)
    yield from _of_network(world, rules)
    if world.kills:
        for number in range(2):
            yield f"{number} is killed", _killed(world, number)._replace(kills=world.kills - 1)
    if world.stops:
        for number, instance in enumerate(world.instances):
            if not instance.open:
                yield f"{number} stops and starts", _stopped(world, number, rules)._replace(stops=world.stops - 1)


def _of_clients(world: World, scenario: Scenario) -> Steps:
    if len(world.notes) >= scenario.notes:
        return
    for client, program in enumerate(scenario.programs):
        mine = [number for number, one in enumerate(world.connections) if one.client == client and one.up]
        at = world.at[client]
        if at == len(program):
            continue
        if not mine:
            for instance in (client,) if len(scenario.programs) > 1 else (0, 1):
                back = frozenset(pid for pid, note in enumerate(world.notes) if not note.held)
                opened = Connection(instance, client, request=(program[at], len(world.notes)), before=back)
                connections = (*world.connections, opened)
                yield f"client {client} sends {program[at]} to {instance}", world._replace(connections=connections)
            continue
        number, connection = mine[0], world.connections[mine[0]]
        if connection.answered:
            done = _change(world, number, answered=False, waits=None)
            acknowledged = (*world.at[:client], at + 1, *world.at[client + 1 :])
            yield f"client {client} reads its answer", done._replace(at=acknowledged)
        elif connection.request is None and connection.waits is None:
            yield (
                f"client {client} sends {program[at]}",
                _change(world, number, request=(program[at], len(world.notes))),
            )
        if world.moves and (connection.request or connection.waits or connection.answered):
            yield f"client {client} leaves", _change(world, number, up=False)._replace(moves=world.moves - 1)


def _of_connection(world: World, number: int, connection: Connection, rules: Rules) -> Steps:
    name, who = f"connection {number}", connection.instance
    instance = world.instances[who]
    if connection.stage == "new" and connection.request is not None:
        if rules.announce == "before":
            yield f"{name}: {who} notes a lease", _leased(world, number, rules)
        else:
            yield f"{name}: {who} looks", _looked(world, number, rules)
    elif connection.stage == "leased":
        yield f"{name}: {who} looks", _looked(world, number, rules)
    elif connection.stage in ("looked", "half"):
        yield from _recoveries(world, number, connection, rules)
    elif connection.request is not None:
        yield f"{name}: {who} takes {connection.request[0]}", _taken(world, number, rules)
    elif not connection.up:
        mine = [copy for copy in instance.open if copy.producer_id == connection.producer_id]
        if rules.returns == "once" or not mine:
            yield f"{name}: {who} sees its end", _given_back(_end(world, number), connection, rules)


def _recoveries(world: World, number: int, connection: Connection, rules: Rules) -> Steps:
    name, who = f"connection {number}", connection.instance
    if connection.stage == "looked" and connection.producer_id < 0:
        yield f"{name}: {who} notes a lease", _leased(world, number, rules)
    elif connection.stage == "looked":
        if any(not world.notes[producer_id].held for producer_id in connection.fences):
            yield f"{name}: {who} looks again", _looked(world, number, rules)
        step = _fenced if rules.first == "fence" else partial(_read, rules=rules)
        yield f"{name}: {who} begins to recover", _change(step(world, number), number, stage="half")
    else:
        step = partial(_read, rules=rules) if rules.first == "fence" else _fenced
        done = _change(step(world, number), number, stage="ready", fences=frozenset(), reads=frozenset(), end=0)
        yield f"{name}: {who} recovers", done


def _of_network(world: World, rules: Rules) -> Steps:
    for copy in dict.fromkeys(world.network):
        network = list(world.network)
        network.remove(copy)
        taken, after = append(world._replace(network=tuple(network)), copy)
        for number, instance in enumerate(after.instances):
            if copy in instance.open:
                after = _told(after, number, copy, taken, rules)
        yield f"the broker {'takes' if taken else 'refuses'} {copy}", after
    if world.resends:
        for instance in world.instances:
            for copy in instance.open:
                network = [*world.network, copy]
                yield f"{copy} is sent again", world._replace(network=_sorted(network), resends=world.resends - 1)


def append(world: World, copy: Copy) -> tuple[bool, World]:
    """The broker takes a copy: whether it answers success, and what is then."""
    broker = dict(world.broker)
    known = broker.get(copy.producer_id, Known())
    if known.fenced_for >= 0:
        return False, world
    if copy.sequence in dict(known.batches):
        return True, world
    if known.batches and copy.sequence != known.batches[-1][0] + 1:
        return False, world
    broker[copy.producer_id] = known._replace(batches=(*known.batches, (copy.sequence, len(world.log)))[-5:])
    log = (*world.log, (copy.payload, copy.producer_id))
    return True, world._replace(log=log, broker=tuple(sorted(broker.items())))


# -- what an instance does


def _leased(world: World, number: int, rules: Rules) -> World:
    connection = world.connections[number]
    if rules.successor == "take":
        world = _takes_list(world, connection.instance, connection.instance)
    world = _listed(world, connection.instance, -1, rules)
    instance = world.instances[connection.instance]
    producer_id = len(world.notes)
    world = world._replace(notes=(*world.notes, Note(connection.instance, shared=instance.shared)))
    world = _be(world, connection.instance, live=instance.live | {producer_id})
    return _change(world, number, producer_id=producer_id, stage="leased" if connection.stage == "new" else "looked")


def _takes_list(world: World, who: int, whose: int) -> World:
    """What another process has in doubt is known, and in doubt here, too."""
    instance, listed = world.instances[who], world.lists[whose]
    if whose == who and instance.live:
        return world  # it is this one's own
    return _be(world, who, known=instance.known | listed, doubts=instance.doubts | listed)


def _listed(world: World, who: int, producer_id: int, rules: Rules) -> World:
    doubts = world.instances[who].doubts
    if rules.lists == "lane":
        doubts &= {payload for payload, writer in world.log if writer == producer_id}
    lists = list(world.lists)
    lists[who] = doubts
    return world._replace(lists=tuple(lists))


def _given_back(world: World, connection: Connection, rules: Rules) -> World:
    world = _listed(world, connection.instance, connection.producer_id, rules)
    return _noted(world, connection.producer_id)


def _looked(world: World, number: int, rules: Rules) -> World:
    connection = world.connections[number]
    instance = world.instances[connection.instance]
    notes = world.notes if rules.look == "end" else instance.seen
    others = {pid: note for pid, note in enumerate(notes) if pid not in instance.live and pid != connection.producer_id}
    shared = instance.shared or any(note.held and note.shared for note in others.values())
    # under a shared identity the other's connections are others' business while they are held
    foreign = {pid for pid, note in others.items() if shared and note.held and note.instance != connection.instance}
    fences = {pid for pid, note in others.items() if note.held} - foreign if rules.held == "fence" else set()
    older = {pid for pid in others if pid not in connection.before} if rules.returned == "list" else set()
    reads = {pid for pid, note in others.items() if note.held or rules.returned == "read" or pid in older} - foreign
    if rules.returned.startswith("list"):
        for whose in range(2):
            world = _takes_list(world, connection.instance, whose)
    world = _be(world, connection.instance, seen=world.notes if rules.look == "cached" else (), shared=shared)
    if shared and connection.producer_id >= 0:
        world = _noted(world, connection.producer_id, held=True, shared=True)
    end = len(world.log) if rules.tail == "look" else 0
    return _change(world, number, stage="looked", fences=frozenset(fences), reads=frozenset(reads), end=end)


def _fenced(world: World, number: int) -> World:
    connection, broker = world.connections[number], dict(world.broker)
    for producer_id in connection.fences:
        broker[producer_id] = broker.get(producer_id, Known())._replace(fenced_for=connection.producer_id)
    return world._replace(broker=tuple(sorted(broker.items())))


def _read(world: World, number: int, rules: Rules) -> World:
    connection = world.connections[number]
    log = world.log if rules.tail == "fence" else world.log[: connection.end]
    found = {payload for payload, writer in log if writer in connection.reads}
    instance = world.instances[connection.instance]
    return _be(world, connection.instance, known=instance.known | found)


def _taken(world: World, number: int, rules: Rules) -> World:
    connection = world.connections[number]
    instance, request = world.instances[connection.instance], connection.request
    assert request is not None
    # the client waits for each answer: it has received the one before
    doubts = instance.doubts - {connection.last} if connection.last != request[0] else instance.doubts
    if request[0] in instance.known:
        doubts |= {request[0]}
    world = _be(world, connection.instance, doubts=doubts)
    instance = world.instances[connection.instance]
    world = _change(world, number, request=None, last=request[0])
    known = request[0] in instance.known
    if known or (rules.equal == "contents" and request[0].swapcase() in instance.known):
        return _change(world, number, waits=request, answered=connection.up)
    if any(copy.payload == request[0] for copy in instance.open):
        return _change(world, number, waits=request)
    copy = Copy(connection.producer_id, connection.sequence, request[0])
    world = _be(world, connection.instance, open=(*instance.open, copy))
    world = world._replace(network=_sorted([*world.network, copy]))
    return _change(world, number, sequence=connection.sequence + 1, waits=request)


def _told(world: World, who: int, copy: Copy, taken: bool, rules: Rules) -> World:
    instance = world.instances[who]
    world = _be(world, who, open=tuple(one for one in instance.open if one != copy))
    if taken:
        is_awaited = any(one.instance == who and one.up and one.last == copy.payload for one in world.connections)
        doubts = instance.doubts if is_awaited else instance.doubts | {copy.payload}
        world = _be(world, who, known=instance.known | {copy.payload}, doubts=doubts)
        for number, one in enumerate(world.connections):
            if one.instance == who and one.up and one.waits is not None and one.waits[0] == copy.payload:
                world = _change(world, number, answered=True)
        return world
    if rules.refused == "again":
        notes = (*world.notes, Note(who))
        again = Copy(len(world.notes), 0, copy.payload)
        world = _be(world, who, open=(*world.instances[who].open, again), live=instance.live | {len(world.notes)})
        return world._replace(notes=notes, network=_sorted([*world.network, again]))
    # nobody here learns the outcome: the connection ends, and its producer id has to be fenced before more
    sent = [
        one.waits[1]
        for one in world.connections
        if one.up and one.waits is not None and one.producer_id == copy.producer_id
    ]
    is_alive = any(at > dict(world.broker)[copy.producer_id].fenced_for for at in sent)
    others = [pid for pid, note in enumerate(world.notes) if note.held and note.instance != who]
    oldest = copy.producer_id if rules.evidence == "newer" else -1
    live = rules.evidence == "any" or any(oldest < pid < at for at in sent for pid in others)
    fenced = instance.fenced + live
    world = _be(world, who, live=instance.live - {copy.producer_id}, fenced=fenced)
    if rules.shared and fenced >= rules.shared:
        world = _be(world, who, shared=True)
    for number, one in enumerate(world.connections):
        same = one.waits is not None and one.waits[0] == copy.payload
        if one.instance == who and (one.producer_id == copy.producer_id or same):
            world = _end(world, number)
    return world._replace(fights=world.fights + is_alive)


def _killed(world: World, who: int) -> World:
    for number, one in enumerate(world.connections):
        if one.instance == who and one.stage != "ended":
            world = _end(world, number)
    instances = list(world.instances)
    instances[who] = Instance()
    return world._replace(instances=tuple(instances))


def _stopped(world: World, who: int, rules: Rules) -> World:
    """Its connections end, what is in doubt is listed, and another process takes its place."""
    for number, one in enumerate(world.connections):
        if one.instance == who and one.stage != "ended":
            world = _given_back(_end(world, number), one, rules)
    instances = list(world.instances)
    instances[who] = Instance()
    return world._replace(instances=tuple(instances))


def _noted(world: World, producer_id: int, *, held: bool = False, shared: bool = False) -> World:
    if producer_id < 0:
        return world
    notes = list(world.notes)
    notes[producer_id] = notes[producer_id]._replace(held=held, shared=shared)
    return world._replace(notes=tuple(notes))


def _end(world: World, number: int) -> World:
    """Ends a connection, and forgets of it what can matter no more."""
    connection = world.connections[number]
    connections = list(world.connections)
    connections[number] = Connection(connection.instance, connection.client, up=False, stage="ended")
    world = world._replace(connections=tuple(connections))
    instance = world.instances[connection.instance]
    return _be(world, connection.instance, doubts=instance.doubts | ({connection.last} & instance.known))


def _change(world: World, number: int, **fields: object) -> World:
    connections = list(world.connections)
    connections[number] = connections[number]._replace(**fields)  # type: ignore[arg-type]
    return world._replace(connections=tuple(connections))


def _be(world: World, who: int, **fields: object) -> World:
    instances = list(world.instances)
    instances[who] = instances[who]._replace(**fields)  # type: ignore[arg-type]
    return world._replace(instances=tuple(instances))


def _sorted(copies: list[Copy]) -> tuple[Copy, ...]:
    return tuple(sorted(copies))


# -- the search


def broken(world: World, scenario: Scenario) -> Iterator[str]:
    """The invariants that are broken."""
    held = Counter(payload for payload, _ in world.log)
    for program, at in zip(scenario.programs, world.at, strict=True):
        if any(not held[payload] for payload in program[:at]):
            yield "lost"
    if any(count > 1 for count in held.values()):
        yield "twice"
    if world.fights >= FOR_EVER:
        yield "for ever"


def explore(rules: Rules, scenario: Scenario) -> Found:
    """Every reachable state, breadth-first, up to the first broken invariant: its trace is a shortest one."""
    start = World(
        notes=(Note(_DEAD),) if scenario.dead else (),
        at=(0,) * len(scenario.programs),
        moves=scenario.moves,
        kills=scenario.kills,
        stops=scenario.stops,
        resends=scenario.resends,
    )
    search: Search[World] = Search(
        lambda world: steps_of(world, scenario, rules), lambda world: broken(world, scenario), sys.maxsize
    )
    return search.run(start, "")


#: What is searched with the rules as they are.
SCENARIOS: Final = {
    "fails over": Scenario(("ab",), moves=1),
    "to and fro": Scenario(("a",), moves=2, notes=3),
    "killed": Scenario(("a",), moves=1, kills=1, notes=3),
    "stopped": Scenario(("ab",), moves=1, stops=1, notes=3),
    "read late": Scenario(("ab",), moves=2, notes=2),
    "sent again": Scenario(("a",), moves=1, resends=1),
    "shared": Scenario(("ab", "AB"), moves=0, notes=4),
    "equal": Scenario(("aA",), moves=1),
    "dead": Scenario(("ab",), moves=1, dead=True),
}
#: Each rule replaced by one that must fail: where, what shows, and why.
FLAWS: Final = {
    Rules(announce="after"): ("fails over", "twice", "two leases at the same time, and neither sees the other"),
    Rules(look="cached"): ("fails over", "twice", "the other's lease is younger than what is known of it"),
    Rules(held="read"): ("fails over", "twice", "a batch in flight is appended after its log was read"),
    Rules(first="read"): ("fails over", "twice", "a batch is appended between the read and the fence"),
    Rules(tail="look"): ("fails over", "twice", "a batch is appended after the end that the look has seen"),
    Rules(equal="contents"): ("equal", "lost", "a record of equal content is taken for the retry of the one before"),
    Rules(returned="ignore"): ("fails over", "twice", "the client has left before it received the answer"),
    Rules(returned="list only"): ("read late", "twice", "a request is read that its client has repeated elsewhere"),
    Rules(lists="lane"): ("to and fro", "twice", "a retry that was matched and lost again was written under another"),
    Rules(successor="forget"): ("stopped", "twice", "the first note of a process replaces the list of the one before"),
    Rules(returns="once"): ("fails over", "twice", "the connection has ended, its batch is still open"),
    Rules(refused="again"): ("fails over", "twice", "the other instance has the batch by then"),
    Rules(shared=0): ("shared", "for ever", "each instance ends the connection of the other's client"),
    Rules(evidence="held"): ("dead", "twice", "the lease of an instance that died long ago did not fence anything"),
    Rules(evidence="any"): ("to and fro", "twice", "one client that moved to and fro counts as two"),
}


def main() -> int:
    """Prints what was found; the number of surprises."""
    surprises = 0
    for name, scenario in SCENARIOS.items():
        surprises += _report(f"the rules, {name}", explore(Rules(), scenario), None)
    for rules, (name, flaw, text) in FLAWS.items():
        surprises += _report(f"{name}: {text}", explore(rules, SCENARIOS[name]), flaw)
    return surprises


def _report(what: str, found: Found, flaw: str | None) -> bool:
    shown = found.trace.invariant if found.trace else None
    sys.stdout.write(f"{what}: {found.states} states, {shown or 'holds'}\n")
    for step in found.trace.steps if found.trace else ():
        sys.stdout.write(f"    {step}\n")
    sys.stdout.flush()
    return shown != flaw


if __name__ == "__main__":
    sys.exit(main())
