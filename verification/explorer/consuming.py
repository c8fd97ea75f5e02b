"""An application of ``on.offset.commit``: it knows nothing of transactions, and each OffsetCommit ends one.

It writes an output for each record of its input, and commits the offset after that record. After an error it joins its
group again, and begins at the offset that is committed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.txn.requests import TxnRequest
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from verification.explorer import invariants
from verification.explorer.client import Abortable, Fatal
from verification.explorer.group import Asks
from verification.explorer.instance import Instance
from verification.explorer.log_steps import Reading
from verification.explorer.managed import ManagedWorld, Writing
from verification.explorer.managed_instance import APPLICATION, ManagedInstance
from verification.explorer.world import World

_GROUP: Final = "g"
#: Records of the input.
_INPUT: Final = 2
_MOST_JOINS: Final = 4


class ConsumingWorld(ManagedWorld):
    """The input is consumed once: its outputs move with its offset."""

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Inputs that are consumed twice, or not at all."""
        seen = [payload for payload, verdict in self.shown() if verdict is Verdict.COMMITTED]
        outputs = Counter(int(payload.split(".")[1]) for payload in seen)
        position = max(self.moved, default=0)
        for number in range(_INPUT):
            if outputs[number] > 1:
                yield invariants.TWICE, f"input {number} has {outputs[number]} outputs: {seen}"
            if number < position and not outputs[number]:
                yield invariants.LOST, f"the group is at {position}, and input {number} has no output"
            if number >= position and outputs[number]:
                yield invariants.OFFSETS, f"the group is at {position}, and input {number} has an output"


class Application(Writing):
    """A consumer and a producer, over one connection."""

    def __init__(self, world: World) -> None:
        """Begin as one that has joined nothing."""
        super().__init__(world, 1, 0)
        self.name = APPLICATION
        self._generation = self._position = self._copies = 0
        self._writes = True

    def may_lose(self, what: str) -> bool:
        """Whether it may lose its connection: where it asks for something that it repeats."""
        return what.startswith(("Produce", "OffsetCommit"))

    async def _run(self) -> None:
        try:
            for _ in range(_MOST_JOINS):
                try:
                    await self._join()
                    while self._position < _INPUT:
                        self._copies += 1
                        await self._write_records([f"1.{self._position}.{self._copies}"])
                        self._writes = True
                        await self._ask(f"OffsetCommit {self._position + 1}", self._commit)
                        self._position += 1
                    return
                except Abortable:
                    continue
            self.ended = "fatal: it has joined often enough"
        except Fatal as error:
            self.ended = f"fatal: {error}"

    async def _join(self) -> None:
        async def ask(instance: Instance, request: TxnRequest) -> tuple[int, int]:
            assert isinstance(instance, ManagedInstance)
            self._peer = instance
            self.world.generation += 1
            generation = self.world.generation
            instance.application.joins(request.connection, rewinds=True)
            instance.application.fetches()  # when the request comes (``kproxy.proxy.applications.watch``)
            while (offset := await Asks(instance).offset()) is None:
                instance.owners.end_left(_GROUP)
                await Reading(instance)
            return generation, offset

        self._generation, self._position = await self._ask("JoinGroup, OffsetFetch, Fetch", ask)

    async def _commit(self, instance: Instance, request: TxnRequest) -> None:
        assert isinstance(instance, ManagedInstance)
        self._peer = instance
        row = TransactionOffsetsPartition(0, self._position + 1)
        offsets = TransactionOffsets(
            group_id=_GROUP,
            generation_id=self._generation,
            member_id="m1",
            topics=[TransactionOffsetsTopic("in", [row])],
        )

        async def found() -> TransactionOffsets:
            return offsets

        try:
            await instance.application.commit(request.connection, found)
        except TxnError:
            if self.world.generation == self._generation:
                self.world.generation += 1  # kproxy has it leave its group (``kproxy.net.txn.application_commits``)
            raise


class ConsumingScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    budget: Mapping[str, int]
    is_balanced: bool = False

    def make(self) -> World:
        """Make the world at its beginning."""
        world = ConsumingWorld({"again": 1, **self.budget})
        world.is_balanced = self.is_balanced
        world.instances = [ManagedInstance(world, "a")]
        world.instances[0].owners.end_former()
        application = Application(world)
        world.clients = [application]
        application.start()
        return world


CONSUMING_SCENARIOS: Final = (
    ConsumingScenario("by rule, unheard", "a response is not heard", {"unheard": 1}),
    ConsumingScenario("by rule, balanced", "and its connection ends in good order", {"unheard": 1}, is_balanced=True),
    ConsumingScenario("by rule, killed", "kproxy is killed at any step", {"crash": 1}),
    ConsumingScenario("by rule, refused", "a batch is refused", {"refuse": 1}),
)
