"""Explicit-state model: which of several processes with one ``instance.id`` keeps it.

The processes run kproxy's own ``InstanceName`` with its ``Holders``: each coroutine is stopped wherever it waits for
the log, a broker or time, and continued in every order. A state is the script that leads to it, run again for each
step; two scripts come to the same state if the coroutines wait at the same places and know the same.

``python -m verification.models.claims`` explores every interleaving of each scenario, and each rule replaced by one
that must fail. The exit status is the number of surprises.

- **Log**: a broker appends what a process wrote at any time, also after that was killed. It refuses a lower epoch of a
  producer id, and takes a sequence number once.
- **Network**: a process may be cut off from the broker; what it sends arrives when that ends.
- **Killed** processes are started again, as new ones with the same options, when what they had sent has arrived or is
  lost. If it may arrive later (``is_late``), none may be left: a process that took over from one that did not answer is
  killed, the next one receives an answer of the first one and ends, and then the note of the second one ends the first.
- **Patience** ends when a process has read all and nothing else can happen, or at any time (``is_slow``, or while a
  process is cut off).

Promises: **both run** and **none runs**: once all is read and nothing is in flight exactly one process has the name,
and (**stuck**) that comes about from every state once faults end. **unread**: no process appends an entry after another
one knows that it has the name; so the next process has read all. **replaced**: a process that was asked to replace
the others has the name in the end. **kept**: one that is alive and can be reached keeps its name otherwise.

Not modelled: topics that are deleted, brokers that forget producers, epochs that run out, entries that were copied from
another cluster, an orderly stop.
"""

import sys
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import CoroutineType, SimpleNamespace, TracebackType
from typing import Any, Final, NamedTuple, cast
from unittest import mock

import click

from kproxy.codec.records import Record
from kproxy.dedup.instance_holder import Holder, Holders, Process, encode_key
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.net import instance_name
from kproxy.net.brokers import backoff
from kproxy.net.instance_name import InstanceName, InstanceTaken, Notes
from kproxy.net.lane_writer import Fenced
from kproxy.net.presence import State as Presence
from verification.models.scenario_runs import run_scenarios
from verification.models.search import Search, Trace

Replaced = tuple[object, str, object]
"""A class or module, and what is put in place of something in it."""
_LANE_KEY: Final = b"a lane"
_FAULT: Final = "fault: "


class _Ask:
    """What a coroutine waits for."""

    def __init__(self, kind: str, *facts: Any) -> None:
        self.kind, self.facts = kind, facts

    def __await__(self) -> Generator["_Ask", Any, Any]:
        return (yield self)


class _PatienceEnds(BaseException):
    """The time of ``trio.move_on_after`` has ended."""


class Entry(NamedTuple):
    """An entry of the log."""

    process: int
    producer_id: int
    epoch: int
    key: bytes
    value: bytes | None


@dataclass
class Broker:
    """The log's partition."""

    log: list[Entry] = field(default_factory=list)
    #: By producer id: its epoch, and the sequence number that comes next.
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)

    def append(self, entry: Entry, sequence: int) -> Fenced | None:
        """The error of a write; None if the entry is in the log."""
        epoch, following = self.producers.get(entry.producer_id, (-1, 0))
        if entry.epoch < epoch:
            return Fenced(is_lost=False)
        if entry.epoch > epoch:
            following = 0
        if sequence > following:
            return Fenced(is_lost=True)
        if sequence == following:
            self.producers[entry.producer_id] = entry.epoch, sequence + 1
            self.log.append(entry)
        return None


@dataclass
class Flight:
    """A write that is in flight."""

    entry: Entry
    sequence: int
    error: Fenced | None = None


class Writer:
    """As ``LaneWriter``, one entry at a time."""

    def __init__(self, process: "Kproxy") -> None:
        self._process = process
        self.producer_id = self.epoch = self.sequence = -1
        self.queue: list[tuple[bytes, bytes | None]] = []

    def begin(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch, self.sequence = producer_id, epoch, 0

    def withdraw(self, key: bytes) -> None:
        self.queue = [entry for entry in self.queue if entry[0] != key]

    async def write(self, key: bytes, value: bytes | None, timestamp_ms: int = 0) -> None:
        entry = Entry(self._process.number, self.producer_id, self.epoch, key, value)
        error = await _Ask("write", Flight(entry, self.sequence))
        if error is not None:
            raise error
        self.sequence += 1

    def put(self, key: bytes, value: bytes | None) -> None:
        self.queue.append((key, value))

    async def run(self) -> None:
        while True:
            while not self.queue:
                await _Ask("idle")
            await self.write(*self.queue[0])
            del self.queue[0]


class _Running:
    """The process whose coroutine runs."""

    process: "Kproxy"


class _Patience:
    """As ``trio.move_on_after``."""

    def __init__(self, process: "Kproxy") -> None:
        self._process = process

    def __enter__(self) -> None:
        self._process.is_patient = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self._process.is_patient = False
        return kind is _PatienceEnds


class Kproxy:
    """A process."""

    def __init__(self, world: "World", number: int, *, replaces: bool) -> None:
        self.world, self.number, self.replaces = world, number, replaces
        self.process = Process(bytes([number + 1]) * 16, f"host {number}", number, 0)
        config = SimpleNamespace(instance_id="me", retry_backoff_ms=1, retry_backoff_max_ms=1)
        self.name = InstanceName(cast(Any, self._cluster()), cast(Any, config), replaces=replaces)
        self.name._presence = cast(Any, self)
        self.writer = Writer(self)
        self.is_patient = self.holds = self.has_put = False
        #: How it ended: "", "refused", "lost" or "killed".
        self.ended = ""
        #: Entries of the log that it has read.
        self.offset = 0
        self.tasks: dict[str, tuple[Coroutine[Any, Any, None], _Ask]] = {}
        self.notes = Notes(self._look, cast(Any, None), self.writer.put, self.writer.put)
        self._start("claims", self._claim())

    def _cluster(self) -> SimpleNamespace:
        network = SimpleNamespace(wall=lambda: 0.0)
        return SimpleNamespace(
            network=network,
            identity=SimpleNamespace(cluster_id="cluster"),
            count_error=lambda _: None,
            new_producer_id=self._new_id,
        )

    async def _new_id(self) -> int:
        self.world.ids += 1
        return self.world.ids

    # -- as ``Presence``

    def open(self) -> None:
        """Others can see it."""

    def state(self, other: Process) -> Presence:
        """What the kernel says of another process."""
        if not self.world.scenario.one_host:
            return Presence.UNKNOWN
        them = next(one for one in self.world.processes if one.process == other)
        return Presence.DEAD if them.ended else Presence.ALIVE

    # -- as ``LaneLog``

    async def _look(self) -> None:
        await _Ask("look")
        for entry in self.world.broker.log[self.offset :]:
            self.name.holders.take(_record(entry.key, entry.value))
        self.offset = len(self.world.broker.log)

    async def _claim(self) -> None:
        await self.name.claim(cast(Any, self.writer), self._look)
        self._begin()

    def _begin(self) -> None:
        self.holds = True
        self.name.note(self.notes)
        self._start("writes", self._write())
        self._start("watches", self._watch())

    async def _write(self) -> None:
        fenced: Fenced | None = None
        while True:
            try:
                if fenced is not None:
                    await self.name.claim(cast(Any, self.writer), self._look, fresh=fenced.is_lost)
                    self.name.note(self.notes)
                await self.writer.run()
            except Fenced as error:
                fenced = error

    async def _watch(self) -> None:
        while True:
            await _Ask("poll")
            try:
                await self.name._look(self.notes)
            except OSError:
                await _Ask("pause")

    # -- how it runs

    def _start(self, name: str, task: Coroutine[Any, Any, None]) -> None:
        self.advance(name, lambda: task.send(None), task)

    def advance(self, name: str, step: Callable[[], _Ask], task: Coroutine[Any, Any, None]) -> None:
        """Runs a task until it waits again; a process that loses its name ends."""
        _Running.process = self
        self.tasks.pop(name, None)
        try:
            ask = step()
        except StopIteration:
            return
        except InstanceTaken:
            self.end("lost" if self.holds else "refused")
            return
        if not self.ended:
            self.tasks[name] = task, ask

    def proceed(self) -> None:
        """Runs the tasks that wait for nothing but time, or for what is there."""
        while ready := [
            name
            for name, (_, ask) in self.tasks.items()
            if ask.kind == "pause" or (ask.kind == "idle" and self.writer.queue)
        ]:
            task = self.tasks[ready[0]][0]
            self.advance(ready[0], lambda one=task: _next(one, None), task)  # type: ignore[misc]

    def end(self, how: str) -> None:
        """It has ended; what it has sent may still arrive."""
        self.ended = how
        for task, ask in self.tasks.values():
            if ask.kind == "write":
                self.world.orphans.append(ask.facts[0])
            task.close()
        self.tasks.clear()

    @property
    def has_name(self) -> bool:
        """It believes that it has the name."""
        return self.holds and not self.ended

    def key(self) -> tuple[object, ...]:
        """All that its next steps depend on."""
        name, holders, writer = self.name, self.name.holders, self.writer
        tasks = tuple((kind, tuple(_places(task)), _ask_key(ask)) for kind, (task, ask) in sorted(self.tasks.items()))
        if self.ended:
            return self.number, self.ended
        return (
            (self.number, self.holds, self.has_put, self.offset, self.replaces, self.is_patient, tasks),
            (holders.holder, holders.before, holders.question),
            (name._own, name._admitted, name._asked, name._rings, name._held, name._unfenced),
            (writer.producer_id, writer.epoch, writer.sequence, tuple(writer.queue)),
        )


def _ask_key(ask: _Ask) -> tuple[object, ...]:
    if ask.kind != "write":
        return (ask.kind,)
    flight: Flight = ask.facts[0]
    return ask.kind, flight.entry, flight.sequence


_PLAIN: Final = (Holder, Process, Presence, bool, int, type(None))


def _places(task: object) -> Iterator[tuple[object, ...]]:
    """Where a coroutine waits, and what it knows there."""
    while isinstance(task, CoroutineType):
        frame = task.cr_frame
        assert frame is not None
        known = tuple((name, one) for name, one in sorted(frame.f_locals.items()) if isinstance(one, _PLAIN))
        yield frame.f_code.co_name, frame.f_lasti, known
        task = task.cr_await


def _record(key: bytes, value: bytes | None) -> Record:
    return Record(0, 0, key, value, ())


# -- the world


@dataclass(frozen=True)
class Scenario:
    """What may happen, and what must be found."""

    name: str
    flaw: str | None = None
    #: Which processes were asked to replace others.
    replaces: tuple[bool, ...] = (False, False)
    #: The first process has the name before anything else happens.
    runs: bool = False
    #: The kernel says which processes are alive.
    one_host: bool = False
    #: Patience may end at any time.
    is_slow: bool = False
    #: What a killed process had sent may still arrive when the next one has begun.
    is_late: bool = False
    cuts: int = 0
    kills: int = 0
    #: Methods that are replaced.
    replaced: tuple[Replaced, ...] = ()


class World:
    """All that there is, at one point of a script."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.broker = Broker()
        self.processes: list[Kproxy] = []
        self.orphans: list[Flight] = []
        self.cut: set[int] = set()
        self.to_start = list(scenario.replaces)
        self.cuts, self.kills = scenario.cuts, scenario.kills
        self.ids = KPROXY_BIT
        self.wrong = ""
        if scenario.runs:
            self._start(replaces=self.to_start.pop(0))
            while steps := [name for name in self.moves() if not name.startswith(("start", _FAULT))]:
                self.do(steps[0])

    def _start(self, *, replaces: bool) -> None:
        self.processes.append(Kproxy(self, len(self.processes), replaces=replaces))

    # -- what can happen

    def moves(self) -> dict[str, Callable[[], None]]:
        """Each next step by its name."""
        found: dict[str, Callable[[], None]] = {}
        for process in self.processes:
            found.update(self._of(process))
        for number, flight in enumerate(self.orphans):
            name = f"what {flight.entry.process} sent before it ended"
            found[f"{name} arrives"] = lambda at=number: self._arrive(self.orphans.pop(at))  # type: ignore[misc]
            found[f"{name} is lost"] = lambda one=flight: self.orphans.remove(one)  # type: ignore[misc]
        for process in self.processes:
            has_read = process.offset == len(self.broker.log) and not self._busy(process)
            if process.is_patient and (self.scenario.is_slow or self.cut or has_read):
                name = f"{process.number} has waited for long enough"
                found[name] = lambda one=process: self._throw(one, "claims", _PatienceEnds())  # type: ignore[misc]
        if self.to_start and (self.scenario.is_late or not self.orphans):
            found[f"start {len(self.processes)}"] = lambda: self._start(replaces=self.to_start.pop(0))
        for number in sorted(self.cut):
            found[f"{number} is connected again"] = lambda at=number: self.cut.discard(at)  # type: ignore[misc]
        found.update(self._faults())
        return found

    def _busy(self, process: Kproxy) -> bool:
        """Whether another process has something to do first."""
        end = len(self.broker.log)
        others = [one for one in self.processes if one is not process and not (one.is_patient and one.offset == end)]
        return any(map(self._of, others))

    def _faults(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for process in self.processes:
            if process.ended:
                continue
            number = process.number
            if self.kills:
                yield f"{_FAULT}{number} is killed", lambda one=process: self._kill(one)  # type: ignore[misc]
            if self.cuts and number not in self.cut:
                yield f"{_FAULT}{number} is cut off", lambda one=number: self._cut(one)  # type: ignore[misc]

    def _kill(self, process: Kproxy) -> None:
        self.kills -= 1
        process.end("killed")
        self.to_start.append(process.replaces)

    def _cut(self, number: int) -> None:
        self.cuts -= 1
        self.cut.add(number)

    def _of(self, process: Kproxy) -> dict[str, Callable[[], None]]:
        found: dict[str, Callable[[], None]] = {}
        number, is_cut = process.number, process.number in self.cut
        for name, (_, ask) in process.tasks.items():
            if ask.kind == "look":
                error = OSError() if is_cut else None
                found[f"{number} {name}: {'can not read' if is_cut else 'reads'}"] = self._resume(process, name, error)
            elif ask.kind == "poll" and not is_cut and process.offset < len(self.broker.log):
                found[f"{number} {name}: finds something"] = self._resume(process, name)
            elif ask.kind == "write" and not is_cut:
                what = f"{number} {name}: {_kind(ask.facts[0].entry)} arrives"
                found[what] = lambda n=name, flight=ask.facts[0]: self._write(process, n, flight)  # type: ignore[misc]
        if process.has_name and not process.has_put:
            found[f"{number} notes a lane"] = lambda: self._put(process)
        return found

    def _write(self, process: Kproxy, name: str, flight: Flight) -> None:
        """A write arrives and is answered: what lies between is no other than a process that does not continue."""
        self._arrive(flight)
        task = process.tasks[name][0]
        process.advance(name, lambda: _next(task, flight.error), task)

    def _resume(self, process: Kproxy, name: str, error: BaseException | None = None) -> Callable[[], None]:
        if error is not None:
            return lambda: self._throw(process, name, error)
        task = process.tasks[name][0]
        return lambda: process.advance(name, lambda: _next(task, None), task)

    def _throw(self, process: Kproxy, name: str, error: BaseException) -> None:
        task = process.tasks[name][0]
        process.advance(name, lambda: cast(_Ask, task.throw(error)), task)

    def _put(self, process: Kproxy) -> None:
        process.has_put = True
        process.writer.put(_LANE_KEY, b"")

    def _arrive(self, flight: Flight) -> None:
        before = len(self.broker.log)
        flight.error = self.broker.append(flight.entry, flight.sequence)
        if len(self.broker.log) > before and flight.entry.key == _LANE_KEY:
            for other in self.processes:
                if other.number != flight.entry.process and other.has_name and self._is_newer(other, flight.entry):
                    self.wrong = f"unread: {flight.entry.process} wrote an entry after {other.number} had the name"

    def _is_newer(self, other: Kproxy, entry: Entry) -> bool:
        """Whether a process claimed the name after the one that wrote an entry had."""
        order = [one.process for one in self.broker.log if _kind(one) == "a note"]
        last = {process: at for at, process in enumerate(order)}
        return last.get(other.number, -1) > last.get(entry.process, -1)

    # -- what is known of it

    def do(self, name: str) -> None:
        """One step."""
        self.moves()[name]()
        for process in self.processes:
            process.proceed()

    def key(self) -> tuple[object, ...]:
        """All that the next steps depend on."""
        orphans = tuple((flight.entry, flight.sequence) for flight in self.orphans)
        log = tuple((entry.producer_id, entry.epoch, entry.key, entry.value) for entry in self.broker.log)
        left = tuple(self.to_start), self.cuts, self.kills, tuple(sorted(self.cut)), self.ids
        producers = tuple(sorted(self.broker.producers.items()))
        return log, producers, orphans, left, tuple(process.key() for process in self.processes), self.wrong

    @property
    def is_quiet(self) -> bool:
        """Nothing happens any more unless a fault does."""
        return not any(not name.startswith(_FAULT) for name in self.moves())

    def broken(self) -> Iterator[str]:
        """The promises that are broken."""
        if self.wrong:
            yield self.wrong
        if not self.is_quiet:
            return
        having = [process for process in self.processes if process.has_name]
        if len(having) > 1:
            yield "both run"
        elif not having:
            yield "none runs"
        elif any(self.scenario.replaces):
            if not having[0].replaces:
                yield "replaced: the process that was asked to replace others has ended"
        elif self._must_keep and having[0].number:
            yield "kept: a process that is alive has lost its name to one that was not asked to replace it"

    @property
    def _must_keep(self) -> bool:
        scenario = self.scenario
        return scenario.runs and not (scenario.kills or scenario.cuts or scenario.is_slow)

    def close(self) -> None:
        """Ends all coroutines."""
        for process in self.processes:
            process.end(process.ended or "over")


def _next(task: Coroutine[Any, Any, None], value: object) -> _Ask:
    return cast(_Ask, task.send(value))


_QUESTION: Final = encode_key("me", question=True)


def _kind(entry: Entry) -> str:
    if entry.key == _LANE_KEY:
        return "a lane"
    if entry.key != _QUESTION:
        return "a note"
    return "no question" if entry.value is None else "a question"


class State:
    """A script, and what it leads to."""

    __slots__ = ("_hash", "broken", "is_over", "key", "moves", "script")

    def __init__(self, scenario: Scenario, script: tuple[str, ...]) -> None:
        self.script = script
        world = World(scenario)
        for name in script:
            world.do(name)
        self.key = world.key()
        self._hash = hash(self.key)
        self.moves = list(world.moves())
        self.broken = list(world.broken())
        self.is_over = world.is_quiet
        world.close()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.key == other.key


def explore(scenario: Scenario, most_states: int = 100_000) -> tuple[int, bool, Trace | None]:
    """States, whether the limit was met, and the first broken promise: its trace is a shortest one."""

    def moves(state: State) -> Iterator[tuple[str, State]]:
        for name in state.moves:
            yield name, State(scenario, (*state.script, name))

    search: Search[State] = Search(moves, lambda state: state.broken, most_states)
    with ExitStack() as stack:
        for kind, name, method in (*_around(), *scenario.replaced):
            stack.enter_context(mock.patch.object(kind, name, method, create=True))
        found = search.run_to_end(
            State(scenario, ()), lambda state: state.is_over, lambda name: name.startswith(_FAULT), "stuck"
        )
    return found.states, found.is_cut, found.trace


def _around() -> Iterator[Replaced]:
    """Time, chance and messages of the modules that are explored."""

    async def sleep(_: float) -> None:
        await _Ask("pause")

    def patience(_: float) -> _Patience:
        return _Patience(_Running.process)

    time = SimpleNamespace(sleep=sleep, move_on_after=patience)
    yield instance_name, "trio", time
    yield backoff, "trio", time
    yield instance_name, "os", SimpleNamespace(urandom=lambda _: b"")
    yield instance_name, "log", SimpleNamespace(warning=_say, error=_say)


def _say(_: str, **__: object) -> None:
    pass


async def _takes(self: InstanceName, former: Holder, *_: object) -> bool:
    """In place of ``InstanceName._admit``: nobody is asked."""
    self._admitted = former.process
    return True


async def _looks_away(_: InstanceName, notes: Notes) -> None:
    """In place of ``InstanceName._look``: the log is read, and nothing follows from it."""
    await notes.look()


_CLAIM: Final = InstanceName.claim


async def _claims_afresh(self: InstanceName, writer: Any, look: Any, *, fresh: bool = True) -> None:
    """In place of ``InstanceName.claim``: each claim is under a producer id of its own."""
    await _CLAIM(self, writer, look, fresh=True)


_APPLY: Final = Holders._apply


def _forgets_before(self: Holders, record: Record) -> None:
    """In place of ``Holders._apply``: what the newest note followed is not known."""
    _APPLY(self, record)
    self.before = None


def _no_fence(_: Holder, __: Holder | None) -> bool:
    """In place of ``Holder.fences``."""
    return False


def _appends_all(self: Broker, entry: Entry, sequence: int) -> Fenced | None:
    """In place of ``Broker.append``: a lower epoch is taken, too."""
    self.log.append(entry)
    return None


def _dead(_: Kproxy, __: Process) -> Presence:
    """In place of ``Presence.state``: what the kernel does not know is dead."""
    return Presence.DEAD


HOLDS: Final = (
    Scenario("a second one is started", runs=True),
    Scenario("a second one is started on the same host", runs=True, one_host=True),
    Scenario("a second one is to replace the first", replaces=(False, True), runs=True),
    Scenario("two begin at the same time", replaces=(False, False)),
    Scenario("the first one may not answer in time", runs=True, is_slow=True),
    Scenario("one is cut off", runs=True, cuts=1),
    Scenario("one is killed and started again", replaces=(False,), runs=True, kills=1),
    Scenario("one of two is killed and started again", runs=True, kills=1, one_host=True),
)
#: What the rules do not promise.
LIMITS: Final = (
    Scenario("a killed process's note arrives late", "none runs", runs=True, kills=1, is_late=True, is_slow=True),
)
FLAWS: Final = (
    Scenario("nobody is asked", "kept", runs=True, replaced=((InstanceName, "_admit", _takes),)),
    Scenario("whom the kernel does not know is dead", "kept", runs=True, replaced=((Kproxy, "state", _dead),)),
    Scenario(
        "a process that has the name does not watch",
        "both run",
        runs=True,
        is_slow=True,
        replaced=((InstanceName, "_look", _looks_away),),
    ),
    Scenario(
        "each claim is under a producer id of its own",
        "unread",
        runs=True,
        is_slow=True,
        replaced=((InstanceName, "claim", _claims_afresh),),
    ),
    Scenario(
        "brokers refuse no lower epoch", "unread", runs=True, is_slow=True, replaced=((Broker, "append", _appends_all),)
    ),
    Scenario(
        "--replace is not heeded",
        "replaced",
        replaces=(False, True),
        runs=True,
        replaced=((InstanceName, "_replaces", property(lambda _: False, lambda _, __: None)),),
    ),
    Scenario("what came in between is not fenced", "unread", replaced=((Holders, "_apply", _forgets_before),)),
    Scenario("what is fenced counts as come in between", "stuck", replaced=((Holder, "fences", _no_fence),)),
)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--traces", is_flag=True, help="Print how each broken promise came about.")
@click.option("--most-states", default=100_000, show_default=True, help="A run ends after so many.")
def main(names: tuple[str, ...], traces: bool, most_states: int) -> None:
    """Explores the scenarios with a part of their name in NAMES, or all; exits with the number of surprises."""
    chosen = [one for one in (*HOLDS, *LIMITS, *FLAWS) if not names or any(part in one.name for part in names)]
    surprises = run_scenarios(chosen, lambda one: explore(one, most_states), traces=traces)
    sys.exit(min(surprises, 100))


if __name__ == "__main__":
    main()
