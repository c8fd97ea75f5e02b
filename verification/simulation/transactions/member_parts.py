"""Workers of a driver: each is a member at some kproxy, writes, prepares, and says whether that is done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import OwnerId
from kproxy.txn.ids import TXN_CLIENTS, Producer
from verification.simulation.transactions import invariants
from verification.simulation.transactions.calls import Calls
from verification.simulation.transactions.control_calls import Ask, ControlClient, Refused, Request, Unheard
from verification.simulation.transactions.history import Claimed, TransactionHistory
from verification.simulation.transactions.member_history import MemberHistory
from verification.simulation.transactions.member_plans import AttemptPlan, MemberGroupPlan
from verification.simulation.transactions.member_writer import MemberWriter, WriteFailed

#: The time for which a worker asks, in seconds.
_PATIENCE: Final = 15.0
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
#: The responses that a worker may get when its part, or its kproxy, has ended.
_OVER: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})


class Failed(Exception):
    """The attempt has ended."""


@dataclass(slots=True)
class Tools:
    """The tools that a group shares."""

    plan: MemberGroupPlan
    #: Connections of a client.id to a kproxy.
    calls: Callable[[str, int], Calls]
    control: ControlClient
    told: TransactionHistory
    history: MemberHistory
    rng: Random
    #: Numbers of producers that nobody else has: each attempt's records are in order.
    numbers: Callable[[], int]
    #: Called when a step is through, by its name.
    stepped: Callable[[str], None] = field(default=lambda _: None)

    def say(self, text: str) -> None:
        """Notes what happens."""
        self.told.note(f"crew {self.plan.number} {text}")


class Part:
    """The records that one client.id writes for a batch."""

    def __init__(self, tools: Tools, plan: AttemptPlan, name: str) -> None:
        """``name`` in the trace, and before the values."""
        self._tools = tools
        self._plan = plan
        self._tid = tools.plan.transactional_id
        #: Of the member; empty for the owner's own.
        self.member = ""
        self.name = name
        self.claimed: Claimed = tools.told.open(name, tools.numbers(), self._tid)
        self._calls: Calls | None = None

    @property
    def instance(self) -> int:
        """The kproxy that it writes at."""
        return self._plan.instance

    async def ask(self, what: str, make: Callable[[], Ask], sent: list[Request] | None = None) -> None:
        """Asks its kproxy. ``Refused``; ``Unheard``."""
        await self._tools.control.ask(what, [self.instance], make, _PATIENCE, [] if sent is None else sent)

    async def write(self, client_id: str) -> None:
        """All that the plan says. ``WriteFailed``."""
        tools, plan = self._tools, self._plan
        self._calls = calls = tools.calls(client_id, plan.instance)
        writer = MemberWriter(calls, tools.told, tools.say, stubborn=plan.stubborn)
        for batches in plan.writes:
            await trio.sleep(plan.gap)
            await writer.write(self.claimed, batches)
        tools.stepped("written")

    def close(self) -> None:
        """Closes its connections."""
        if self._calls is not None:
            self._calls.close()


class Attempt(Part):
    """An attempt to write a part as a member."""

    def __init__(self, tools: Tools, plan: AttemptPlan, name: str, owner: OwnerId) -> None:
        """``owner``: who the driver was when it began it."""
        super().__init__(tools, plan, name)
        self._owner = owner
        self._tries = 0

    async def run(self) -> bool:
        """Whether the part is prepared."""
        try:
            await self._work()
        except (Failed, WriteFailed, Unheard, Refused) as error:
            self._tools.say(f"{self.name} fails: {error}")
            if self._plan.gives_up and self.member:
                await self._give_up()
            return False
        finally:
            self.close()
        return True

    async def _work(self) -> None:
        await trio.sleep(self._plan.gap)
        await self._begin()
        await self.write(f"{TXN_CLIENTS}{self.member}")
        if self._plan.fails:
            raise Failed("as it was to")
        await self._prepare()

    async def _begin(self) -> None:
        tools, tid = self._tools, self._tid
        was_fenced = self._is_fenced()

        def make() -> Ask:
            self._tries += 1
            self.member = member = f"{self.name}-{self._tries}"  # one that was asked for may be taken
            return lambda control: control.begin_member(
                tid, member, client_id=f"{TXN_CLIENTS}{member}", owner=self._owner, timeout_ms=tools.plan.timeout_ms
            )

        try:
            await self.ask(f"begin {self.name}", make)
        except Refused as error:
            if error.code not in _FENCED:
                tools.told.breaks(invariants.CAUSE, f"{self.name} begins, and receives {error}")
            raise
        if was_fenced:
            tools.told.breaks(invariants.FENCED, f"{self.name} began, though a newer owner had the id")
        tools.stepped("begun")

    def _is_fenced(self) -> bool:
        return self._tools.told.is_fenced(self._tid, Producer(*self._owner))

    async def _prepare(self) -> None:
        tools, tid, member = self._tools, self._tid, self.member
        since = trio.current_time()
        try:
            await self.ask(f"prepare {member}", lambda: lambda control: control.prepare_member(tid, member))
        except Refused as error:
            if error.code not in _OVER:
                tools.told.breaks(invariants.CAUSE, f"{member} prepares, and receives {error}")
            if not await self._is_prepared():
                raise
        tools.history.prepared(tid, member, since)
        tools.say(f"{member} is prepared")
        tools.stepped("prepared")

    async def _is_prepared(self) -> bool:
        """Whether it is prepared after all: the response may be lost, and its kproxy know it from the log alone."""
        found = await self._tools.control.ask(
            f"describe for {self.member}",
            [self.instance],
            lambda: lambda control: control.describe(self._tid),
            _PATIENCE,
            [],
        )
        return any(part.name == self.member and part.prepared for part in found.parts)

    async def _give_up(self) -> None:
        tid, member = self._tid, self.member
        try:
            await self.ask(f"give {member} up", lambda: lambda control: control.abort_member(tid, member))
        except (Refused, Unheard):
            return


class Task:
    """One part of a batch; several attempts may be under way."""

    def __init__(self, attempts: Sequence[Attempt], *, speculates: bool) -> None:
        """``speculates``: all at once; else one after the other."""
        self._attempts = attempts
        self._speculates = speculates
        #: The first that was prepared.
        self.part: Attempt | None = None
        #: Set when there is one, or all have failed.
        self.done = trio.Event()

    async def run(self) -> None:
        """Runs until all attempts have ended."""
        async with trio.open_nursery() as nursery:
            for attempt in self._attempts:
                if self._speculates:
                    nursery.start_soon(self._one, attempt)
                elif self.part is None:
                    await self._one(attempt)
        self.done.set()

    async def _one(self, attempt: Attempt) -> None:
        if await attempt.run() and self.part is None:
            self.part = attempt
            self.done.set()
