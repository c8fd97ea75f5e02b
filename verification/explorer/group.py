"""Two transactional ids, each with an instance of its own, whose producers take turns with the input of one group.

The group's member that has the input asks for the group's offset as a client does, through the product's own
``GroupAsks``, and commits its result for the next record with the offset after that. A hundred offsets stand for
one record, so that each transaction has an offset of its own.
"""

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.group_offset_requests import GroupAsks
from kproxy.proxy.coordinator_requests import BeforeOffsetFetch, UnstableOffsets
from kproxy.txn.requests import TxnRequest
from kproxy.txn.verdict import Verdict
from verification.explorer import invariants
from verification.explorer.client import Client, Fatal
from verification.explorer.engine import Move, Step
from verification.explorer.instance import Instance
from verification.explorer.log_steps import Reading
from verification.explorer.scripts import Script, Txn
from verification.explorer.world import World

_GROUP: Final = "g"
#: Of one record.
_OFFSETS: Final = 100
_TXN: Final = Txn((1,), offsets=True)


class Asks(GroupAsks):
    """The product's, of one instance."""

    def __init__(self, instance: Instance) -> None:
        """The broker has no offset of the group."""
        self.__dict__.update(
            {"_log": SimpleNamespace(views=instance.views), "_stable": None, "_read_to_end": lambda: Reading(instance)}
        )

    async def offset(self) -> int | None:
        """The offset of the group; None while a transaction that moves it is open."""
        found = await self.before_fetch(BeforeOffsetFetch([_GROUP], UnstableOffsets.TELL, by_id=False))
        rows = [row for group in found.groups for topic in group.topics for row in topic.partitions]
        if any(row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT for row in rows):
            return None
        return max((row.committed_offset for row in rows), default=0)


class GroupWorld(World):
    """The input is one member's at a time: the first one's at the beginning."""

    owner = 1
    #: How many records the input has.
    records = 1

    def facts(self) -> tuple[Any, ...]:
        """The client that has the input."""
        return (self.owner,)

    def _rebalance(self) -> None:
        super()._rebalance()
        self.owner = 3 - self.owner

    def is_current(self, offsets: TransactionOffsets) -> bool:
        """Whether a member has the input, in the generation of its offsets if they name one."""
        if offsets.generation_id < 0:
            return offsets.member_id == f"m{self.owner}"
        return super().is_current(offsets)

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Each record of the input is consumed once."""
        seen = [payload for payload, verdict in self.shown() if verdict is Verdict.COMMITTED]
        consumed = Counter(self._input(*map(int, payload.split("."))) for payload in seen)
        if any(count > 1 for count in consumed.values()):
            yield invariants.INPUT, f"{seen} are committed"

    def _input(self, client: int, _: int, transaction: int) -> int:
        """The record of the input that a committed record was made of."""
        return self.clients[client - 1].offset(transaction) // _OFFSETS


class _Assigned(Step):
    """Waits until the group gives its member the input."""

    def __init__(self, member: "Member") -> None:
        super().__init__("assigned")
        self._member, self._world = member, member.world

    def moves(self) -> Iterator[Move]:
        """The member has it; or leaves, as it will not get it any more."""
        assert isinstance(self._world, GroupWorld)
        if self._world.owner == self._member.number:
            yield Move(f"{self._member.name} has the input", lambda: self._go_on(has_input=True))
        elif not self._world.budget["rebalance"]:
            yield Move(f"{self._member.name} leaves", lambda: self._go_on(has_input=False))

    def _go_on(self, *, has_input: bool) -> None:
        assert self.task is not None
        self.task.resume(has_input)


class Member(Client):
    """A producer that is a member of the group."""

    def __init__(self, world: World, number: int, *, second: bool) -> None:
        """Begin without input."""
        super().__init__(world, number, Script((), second=second, at=number - 1, transactional_id=f"id {number}"))
        self._generation = 0
        #: Those that its transactions commit.
        self._offsets: list[int] = []

    @property
    def generation(self) -> int:
        """The generation in which it received the input."""
        return self._generation

    def offset(self, number: int) -> int:
        return self._offsets[number - 1]

    async def _run(self) -> None:
        try:
            await self._initialize()
            while await _Assigned(self):
                self._generation = self.world.generation
                offset = await self._ask("OffsetFetch", self._fetch)
                if offset is None:
                    continue
                if offset // _OFFSETS >= self._records:
                    return
                following = (offset // _OFFSETS + 1) * _OFFSETS
                self._offsets.append(following + 10 * len(self._offsets) + self.number)
                await self._transaction(_TXN)
        except Fatal as error:
            self.ended = f"fatal: {error}"

    @property
    def _records(self) -> int:
        assert isinstance(self.world, GroupWorld)
        return self.world.records

    async def _fetch(self, instance: Instance, _: TxnRequest) -> int | None:
        return await Asks(instance).offset()


class GroupScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    #: How often the input goes to the other member, after the opening.
    rebalances: int
    second: bool = False
    #: What happens first, by the beginning of its text.
    opening: tuple[str, ...] = ("client 1 has the input",)
    records: int = 1

    def make(self) -> World:
        """Make the world at its beginning."""
        world = GroupWorld({"again": 1, "rebalance": self.rebalances + self.opening.count(_REBALANCE)})
        world.records = self.records
        world.instances = [Instance(world, name) for name in "ab"]
        world.clients = [Member(world, number, second=self.second) for number in (1, 2)]
        first, second = world.clients
        second.start()
        while moves := [move for move in world.moves() if not move.is_fault]:
            moves[0].do()
        first.start()
        world.open(self.opening)
        return world


_REBALANCE: Final = "the group moves on"
_CONSUMED_BETWEEN: Final = (
    *("client 1 has the input", "client 1 asks a: Produce", _REBALANCE, "client 2 has the input"),
    *("client 2 asks b: OffsetFetch", "b/OffsetFetch reads", "client 2 asks b: Produce", "b/Produce 2.0.1: PARTITIONS"),
    *("2.0.1 arrives", "b hears of 2.0.1", "client 2 asks b: TxnOffsetCommit", "b/TxnOffsetCommit checks"),
    *("b/TxnOffsetCommit: OFFSETS", "b/TxnOffsetCommit reads", "client 2 asks b: EndTxn", "b/EndTxn commit checks"),
)
GROUP_SCENARIOS: Final = (
    GroupScenario("shared group, TV1", "the group gives the input to the other producer", 1),
    GroupScenario("shared group, TV2", "the same, in the second protocol", 1, second=True),
    GroupScenario(
        "shared group, back, TV2",
        "and it comes back during the first one's transaction, when the other has consumed it",
        1,
        second=True,
        opening=_CONSUMED_BETWEEN,
    ),
    GroupScenario(
        "shared group, in turn, TV2",
        "each consumes a record",
        0,
        second=True,
        opening=("client 1 has the input", "a/EndTxn commit: DECISION", _REBALANCE),
        records=2,
    ),
)
