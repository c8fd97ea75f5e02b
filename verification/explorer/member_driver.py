"""Drivers whose batches are written by members, each in a transaction of the broker's, one batch after the other."""

from typing import Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.batch_decisions import BatchDecision
from kproxy.txn.procedures.member_control import MemberControl
from kproxy.txn.procedures.members import Joining
from kproxy.txn.requests import ClientBatch
from verification.explorer.client import TIMEOUT_MS, Abortable, Fatal
from verification.explorer.instance import batch_of
from verification.explorer.managed import HandDriver, Plan
from verification.explorer.managed_instance import Managing
from verification.explorer.member_instance import MemberInstance
from verification.explorer.scripts import Told
from verification.explorer.world import NAME, PARTITIONS, World


class Batches(NamedTuple):
    """The acts of a driver."""

    #: How many batches it has, and how many members each of them.
    number: int = 2
    members: int = 1
    #: How often it writes a batch, until it is committed.
    tries: int = 2
    #: The number of its instance.
    at: int = 0


class MembersDriver(HandDriver):
    """A driver, and the clients of its members."""

    def __init__(self, world: World, number: int, batches: Batches) -> None:
        """Begin with nothing asked."""
        super().__init__(world, number, Plan(at=batches.at))
        self.batches = batches
        #: What it has written of each batch.
        self.tries: list[list[Told]] = []
        #: How many batches it has heard to be committed.
        self.done = 0

    async def _run(self) -> None:
        try:
            found = await self._hand("initialize", _initialize)
            self.identity = Producer(found.producer_id, found.producer_epoch)
            for _ in range(self.batches.number):
                self.tries.append([])
                if not await self._batch():
                    return
                self.done += 1
        except Fatal as error:
            self.ended = f"fatal: {error}"

    async def _batch(self) -> bool:
        for _ in range(self.batches.tries):
            told = Told()
            self.told.append(told)
            self.tries[-1].append(told)
            try:
                await self._write_and_commit(told)
            except Abortable:
                await self._abort(told)
            else:
                return True
        return False

    async def _write_and_commit(self, told: Told) -> None:
        numbers = range(self.batches.members)
        told.sent += [f"{self.number}.{member}.{len(self.told)}" for member in numbers]
        names = [f"m{payload}" for payload in told.sent]
        for member, name in zip(numbers, names, strict=True):
            await self._join(name, self._client(member))
            await self._write_as(self._client(member), PARTITIONS[member], told.sent[member])
            told.acknowledged.append(told.sent[member])
            await self._hand(f"prepare {name}", lambda one, name=name: _members(one).prepare(NAME, name, 1))
        told.asked.append(True)
        decision = BatchDecision(NAME, self.identity, f"{self.number}.{self.done}", names)
        await self._hand("commit", lambda one: one.control.commit(decision))

    def _client(self, member: int) -> str:
        return f"{self.name}/{member}"

    async def _join(self, name: str, client: str) -> None:
        wanted = Joining(NAME, name, self.identity, client, TIMEOUT_MS)
        try:
            await self._hand(f"join {name}", lambda one: _members(one).begin(wanted))
        except Fatal:
            if self.refused[1] is not ErrorCode.INVALID_REQUEST:
                raise
            raise Abortable(name) from None  # a kproxy that was killed since had it join

    async def _write_as(self, client: str, place: tuple[str, int], payload: str) -> None:
        await self._write_batches(client, [ClientBatch(*place, batch_of(f"<{payload}>"), 1, -1)], payload)


async def _initialize(instance: Managing) -> object:
    return await instance.control.initialize(NAME, _OWNER, TIMEOUT_MS)


_OWNER: Final = "driver"


def _members(instance: Managing) -> MemberControl:
    assert isinstance(instance, MemberInstance)
    return instance.member_control
