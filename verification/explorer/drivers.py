"""Drivers that take one transactional id in turn: each prepares the parts of its batch, and commits them by name.

A driver's batch may have a part of the owner's own, a member, or both. A driver that has prepared everything may be
restarted: it takes the id again, as a new owner, and commits what it had prepared. The product's own procedure
(``kproxy.txn.procedures.batch_decisions``) says what a commit covers.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.batch_decisions import BatchDecision, BatchDecisions, OpenBatch
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.members import Joining, Members, PlainMembers
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from verification.explorer.client import TIMEOUT_MS, Abortable, Client, Fatal
from verification.explorer.engine import Move
from verification.explorer.instance import Instance, batch_of
from verification.explorer.member_makers import makers_of
from verification.explorer.scripts import Script, Told
from verification.explorer.world import NAME, PARTITIONS, World


class Batch(NamedTuple):
    """The parts of a driver's batch."""

    has_own: bool = True
    has_member: bool = True
    #: Whether the own part is prepared under the batch's id.
    is_named: bool = False
    #: Whether its commit aborts all else of the id.
    aborts_others: bool = False


class _Open:
    """The open transaction of an owner, as ``ManagedTransactions.open_here`` has it."""

    def __init__(self, owner: LogOwner, request: TxnRequest) -> None:
        self._owner, self._request = owner, request

    async def commit(self, also: DecisionScope) -> None:
        await self._owner.end(self._request, committed=True, bumps=False, also=also)

    async def abort(self, also: DecisionScope) -> None:
        await self._owner.end(self._request, committed=False, bumps=False, also=also)


class _Ports:
    """The ``DecisionPorts`` of one instance; no broker keeps members' data."""

    def __init__(self, instance: Instance) -> None:
        """Nothing has begun there."""
        self._instance = instance
        self.instance_id = instance.name
        self.view_of = instance.views.of

    async def found(self, name: str) -> IdView:
        view = await self._instance.read_to_end(name)
        if view is None:
            raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
        return view

    def open_here(self, name: str, owner: Producer | None) -> OpenBatch | None:
        found = self._instance.owners.known(name)
        if found is None or not found.is_open or owner != found.keeper.client:
            return None
        return _Open(found, TxnRequest(name, owner, 0, ""))

    async def decide(self, name: str, owner: Producer | None, *, committed: bool, also: DecisionScope) -> None:
        await self._instance.owners.decide(name, owner, committed=committed, also=also)

    async def check_members(self, view: IdView, also: DecisionScope) -> None:
        pass

    async def finish_members(self, name: str) -> None:
        pass


class Driver(Client):
    """One driver."""

    def __init__(self, world: World, number: int, batch: Batch) -> None:
        """Begin with nothing prepared."""
        super().__init__(world, number, Script(()))
        self.batch = batch
        #: Whether it has prepared everything; whether its commit is answered.
        self.is_ready = self._is_done = False
        #: Whether its commit has reached kproxy.
        self._is_asked = False

    def moves(self) -> Iterator[Move]:
        """Yield its restart, once it has prepared everything.

        Without a member or a batch id, not after its commit was sent: such a commit that is repeated aborts another
        driver's part, which verification/corners/transactions.md names as a limit.
        """
        is_known = self.batch.has_member or self.batch.is_named
        may_repeat = is_known or len(self.world.clients) == 1 or not self._is_asked
        if self.world.budget["restart"] and self.is_ready and not self._is_done and may_repeat:
            yield Move(f"{self.name} is restarted", self._is_restarted, is_fault=True)

    def _is_restarted(self) -> None:
        self.world.budget.take("restart")
        self.restart()

    def restart(self) -> None:
        """Take the id again, and commit what was prepared."""
        self.world.engine.kill(self)
        self.waiting.clear()
        self.ended = ""
        self.leave()
        self.start()

    async def _run(self) -> None:
        try:
            await self._take_the_id()
            if not self.is_ready:
                await self._prepare_all()
            await self._commit()
        except (Fatal, Abortable) as error:
            self.ended = f"fatal: {error}"

    async def _take_the_id(self) -> None:
        async def ask(instance: Instance, _: TxnRequest) -> Producer:
            return await instance.requests.init_producer_id(NAME, TIMEOUT_MS, NOBODY, self.name)

        self.identity = await self._ask(f"initialize {self.number}", ask)

    async def _prepare_all(self) -> None:
        told = Told()
        self.told.append(told)
        if self.batch.has_own:
            await self._own_part(told)
        if self.batch.has_member:
            await self._member(told)
        self.is_ready = True

    async def _own_part(self, told: Told) -> None:
        payload = f"{self.number}.own"
        told.sent.append(payload)

        async def ask(instance: Instance, request: TxnRequest) -> None:
            batch = ClientBatch(*PARTITIONS[0], batch_of(f"<{payload}>"), 1, -1)
            await instance.requests.produce(request, [batch], implicit=True, accepted=lambda: None)
            await instance.requests.prepare(request, str(self.number) if self.batch.is_named else None)

        await self._ask(f"write and prepare {payload}", ask)
        told.acknowledged.append(payload)

    async def _member(self, told: Told) -> None:
        payload = f"{self.number}.member"
        told.sent.append(payload)

        async def ask(instance: Instance, request: TxnRequest) -> None:
            wanted = Joining(NAME, payload, request.client, self.name, TIMEOUT_MS)
            member = await Members(instance.tools, makers_of(PlainMembers())).join(wanted)
            batch = ClientBatch(*PARTITIONS[1], batch_of(f"<{payload}>"), 1, -1)
            await member.produce([batch], lambda: None)
            await member.prepare()

        await self._ask(f"write and prepare {payload}", ask)
        told.acknowledged.append(payload)

    async def _commit(self) -> None:
        told = self.told[-1]
        names: Sequence[str] = [f"{self.number}.member"] if self.batch.has_member else []

        async def ask(instance: Instance, request: TxnRequest) -> None:
            self._is_asked = True
            told.asked.append(True)
            decision = BatchDecision(NAME, request.client, str(self.number), names, self.batch.aborts_others)
            await BatchDecisions(_Ports(instance)).commit(decision)

        await self._ask(f"commit {self.number}", ask)
        told.committed = self._is_done = True


_BOTH: Final = Batch()
_OWN: Final = Batch(has_member=False)
_MEMBER: Final = Batch(has_own=False)
_NAMED: Final = Batch(has_member=False, is_named=True)
_ALONE: Final = _NAMED._replace(aborts_others=True)


class DriverScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    batches: tuple[Batch, ...]
    #: How often drivers may be restarted.
    restarts: int
    #: Whether the first has prepared everything before the others begin.
    is_first_ready: bool = True
    #: Whether it has committed, too, and was restarted without knowing it.
    repeats: bool = False

    def make(self) -> World:
        """Make the world at its beginning."""
        world = World({"restart": self.restarts, "again": 2})
        world.instances = [Instance(world, "a")]
        drivers = [Driver(world, number, batch) for number, batch in enumerate(self.batches, 1)]
        world.clients = list(drivers)
        first, *others = drivers
        first.start()
        if self.is_first_ready:
            _go_on(world, lambda: first.is_ready)
        if self.repeats:
            _go_on(world, partial(_has_committed, world))
            first.restart()
        for client in others:
            client.start()
        return world


def _has_committed(world: World) -> bool:
    view = world.instances[0].views.of(NAME)
    return view is not None and view.has_committed("1")


def _go_on(world: World, until: Callable[[], bool]) -> None:
    """Has everything go well, up to a state."""
    while not until():
        next(move for move in world.moves() if not move.is_fault).do()


DRIVER_SCENARIOS: Final = (
    DriverScenario("drivers", "each has a part of its own and a member", (_BOTH, _BOTH), 1),
    DriverScenario(
        "drivers at once", "the same, and they begin at the same time", (_BOTH, _BOTH), 0, is_first_ready=False
    ),
    DriverScenario("drivers, one with members alone", "the other has both", (_BOTH, _MEMBER), 1),
    DriverScenario("one driver without members", "its batch is its own part", (_OWN,), 2, is_first_ready=False),
    DriverScenario("drivers without members", "two of these", (_OWN, _OWN), 2),
    DriverScenario(
        "drivers with batch ids",
        "two without members, which prepare under an id",
        (_NAMED, _NAMED),
        1,
        repeats=True,
    ),
    DriverScenario("drivers with batch ids, one aborts all else", "by its commit", (_ALONE, _NAMED), 1, repeats=True),
)
