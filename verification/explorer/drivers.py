"""Drivers that take one transactional id in turn: each prepares the parts of its batch, and commits them by name.

A driver's batch may have a part of the owner's own, a member, or both. A driver that has prepared everything may be
restarted: it takes the id again, as a new owner, and commits what it had prepared. The product's own control service
says what a commit covers.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from kproxy.net.txn.control_service import ControlService
from kproxy.net.txn.members import Joining, Members
from kproxy.txn.claims import NOBODY
from kproxy.txn.described import OwnerId
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.procedures.owner_policy import CLIENT
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.view import IdView
from verification.explorer.client import TIMEOUT_MS, Abortable, Client, Fatal
from verification.explorer.engine import Move
from verification.explorer.instance import Instance, batch_of
from verification.explorer.scripts import Script, Told
from verification.explorer.world import NAME, PARTITIONS, World


class Batch(NamedTuple):
    """What a driver's batch consists of."""

    has_own: bool = True
    has_member: bool = True


class _Capture:
    """The open transaction of an owner, as ``ManagedTransaction`` has it."""

    def __init__(self, owner: LogOwner, request: TxnRequest) -> None:
        self._owner, self.request = owner, request

    async def commit(self, also: DecisionScope = ALONE) -> None:
        await self._owner.end(self.request, committed=True, bumps=False, also=also)


async def _nothing(*_: object) -> None:
    pass


class Control(ControlService):
    """The product's, of one instance; the brokers are not asked about members."""

    def __init__(self, instance: Instance) -> None:
        """Nothing has begun there."""
        self._instance = instance
        no = SimpleNamespace(has=lambda *_: False, is_open=lambda *_: False, was_committed=lambda *_: False)
        parts: dict[str, Any] = {
            "_at_broker": no,
            "_coordinator": SimpleNamespace(decide=instance.owners.decide, instance_id=instance.name),
            "_log": SimpleNamespace(opened=SimpleNamespace(is_set=lambda: True), views=instance.views),
            "_begun": SimpleNamespace(ending=lambda _: nullcontext()),
            "_told": SimpleNamespace(votes=SimpleNamespace(check=_nothing), ends=SimpleNamespace(finish=_nothing)),
        }
        self.__dict__.update(parts)

    async def _read(self, name: str) -> IdView | None:
        return await self._instance.read_to_end(name)

    def _describe(self, name: str) -> Any:
        return None

    def _open_here(self, name: str, owner: OwnerId | None) -> Any:
        found = self._instance.owners.known(name)
        if found is None or owner is None or not found.is_open or found.keeper.client != Producer(*owner):
            return None
        return _Capture(found, TxnRequest(name, found.keeper.client, 0, ""))


class Driver(Client):
    """One driver."""

    def __init__(self, world: World, number: int, batch: Batch) -> None:
        """It has prepared nothing."""
        super().__init__(world, number, Script(()))
        self.batch = batch
        #: Whether it has prepared everything; whether its commit is answered.
        self.is_ready = self._is_done = False
        #: Whether its commit has reached kproxy.
        self._is_asked = False

    def moves(self) -> Iterator[Move]:
        """It is restarted, once it has prepared everything.

        Without a member, not after its commit was sent: such a commit that is repeated aborts another driver's part,
        which docs/transactions-advanced.md names as a limit.
        """
        may_repeat = self.batch.has_member or len(self.world.clients) == 1 or not self._is_asked
        if self.world.budget["restart"] and self.is_ready and not self._is_done and may_repeat:
            yield Move(f"{self.name} is restarted", self._restart, is_fault=True)

    def _restart(self) -> None:
        self.world.budget.take("restart")
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
            return await instance.owners.initialize(NAME, TIMEOUT_MS, NOBODY, self.name, CLIENT)

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
            owner = await instance.owners.owner(request)
            batch = ClientBatch(*PARTITIONS[0], batch_of(f"<{payload}>"), 1, -1)
            await owner.produce(request, [batch], implicit=True, accepted=lambda: None)
            await owner.prepare(request)

        await self._ask(f"write and prepare {payload}", ask)
        told.acknowledged.append(payload)

    async def _member(self, told: Told) -> None:
        payload = f"{self.number}.member"
        told.sent.append(payload)

        async def ask(instance: Instance, request: TxnRequest) -> None:
            wanted = Joining(NAME, payload, request.client, self.name, TIMEOUT_MS, at_broker=False)
            member = await Members(instance.tools, None).join(wanted)  # type: ignore[arg-type]  # no broker decides
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
            control = Control(instance)
            await control.commit(NAME, batch_id=str(self.number), members=names, owner=OwnerId(*request.client))

        await self._ask(f"commit {self.number}", ask)
        told.committed = self._is_done = True


_BOTH: Final = Batch()
_OWN: Final = Batch(has_member=False)
_MEMBER: Final = Batch(has_own=False)


class DriverScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    batches: tuple[Batch, ...]
    #: How often drivers may be restarted.
    restarts: int
    #: Whether the first has prepared everything before the others begin.
    is_first_ready: bool = True

    def make(self) -> World:
        """At its beginning."""
        world = World({"restart": self.restarts, "again": 2})
        world.instances = [Instance(world, "a")]
        drivers = [Driver(world, number, batch) for number, batch in enumerate(self.batches, 1)]
        world.clients = list(drivers)
        first, *others = drivers
        first.start()
        while self.is_first_ready and not first.is_ready:
            next(move for move in world.moves() if not move.is_fault).do()
        for client in others:
            client.start()
        return world


DRIVER_SCENARIOS: Final = (
    DriverScenario("drivers", "each has a part of its own and a member", (_BOTH, _BOTH), 1),
    DriverScenario(
        "drivers at once", "the same, and they begin at the same time", (_BOTH, _BOTH), 0, is_first_ready=False
    ),
    DriverScenario("drivers, one with members alone", "the other has both", (_BOTH, _MEMBER), 1),
    DriverScenario("one driver without members", "its batch is its own part", (_OWN,), 2, is_first_ready=False),
    DriverScenario("drivers without members", "two of these", (_OWN, _OWN), 2),
)
