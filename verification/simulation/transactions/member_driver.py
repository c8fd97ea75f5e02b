"""A driver: it takes a transactional id, has its workers prepare the parts of each batch, and decides them."""

from collections.abc import Callable, Sequence
from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import Described, OwnerId
from kproxy.txn.ids import TXN_CLIENTS, Producer
from verification.simulation.transactions import invariants
from verification.simulation.transactions.control_calls import Ask, Refused, Request, Unheard
from verification.simulation.transactions.member_history import PREPARED, Decision
from verification.simulation.transactions.member_parts import Attempt, Failed, Part, Task, Tools
from verification.simulation.transactions.member_plans import BatchPlan, DriverLife, TaskPlan
from verification.simulation.transactions.member_writer import WriteFailed

#: The time for which a driver asks, in seconds.
_PATIENCE: Final = 40.0
#: The number of times that a batch is begun again in one life.
_MOST_RUNS: Final = 3
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class Over(Exception):
    """This life can't continue."""


class Driver:
    """All lives of one, and its workers, which outlive it."""

    def __init__(self, tools: Tools) -> None:
        """Keeps its state from life to life: the next batch, and what it was about to decide."""
        self.plan = tools.plan
        self._tools = tools
        self._tid = tools.plan.transactional_id
        self._places: Sequence[int] = (0,)
        self._owner = OwnerId(-1, -1)
        self._take = Request(lambda control: control.describe(""))
        self._next = 0
        self._runs = 0
        self._open: Decision | None = None
        self._own: Part | None = None
        self._workers: trio.Nursery

    async def run(self, instances: int) -> None:
        """One life after the other."""
        self._places = range(instances)
        async with trio.open_nursery() as self._workers:
            for nth, life in enumerate(self.plan.lives):
                await trio.sleep(life.gap)
                with trio.move_on_after(life.dies_after if life.dies_after is not None else float("inf")) as scope:
                    await self._live(life)
                self._close_own()
                if scope.cancelled_caught:
                    self._say(f"{nth} is killed")

    def _close_own(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None

    def _say(self, text: str) -> None:
        self._tools.say(f"driver {text}")

    async def _live(self, life: DriverLife) -> None:
        try:
            await self._begin(life)
            while self._next < len(self.plan.batches):
                await self._batch(self.plan.batches[self._next])
        except (Over, Unheard) as error:
            self._say(f"ends: {error!r}")
        else:
            self._say("is done")

    # -- the id

    async def _begin(self, life: DriverLife) -> None:
        """Takes the id; what a former life was about to decide is decided, or aborted, as the plan says."""
        self._runs = 0
        await self._initialize([life.instance, *self._places])
        if self.plan.keeps and self._open is not None and await self._commit(self._open, self._places, sweeps=True):
            self._next, self._open = self._next + 1, None
            return
        self._open = None
        await self._sweep()

    async def _initialize(self, places: Sequence[int]) -> None:
        tid, timeout_ms = self._tid, self.plan.timeout_ms
        await self._taken(
            "initialize", places, lambda control: control.initialize(tid, client_id="driver", timeout_ms=timeout_ms)
        )

    async def _taken(self, what: str, places: Sequence[int], ask: Ask) -> None:
        takes = self._tools.history.takes(self._tid)
        found = await self._asked(what, places, lambda: ask, takes)
        self._take = next(one for one in takes if one.found is found)
        self._owner = found.owner
        self._tools.told.gives(self._tid, Producer(*found.owner))
        self._say(f"is {found.owner.producer_id}/{found.owner.producer_epoch}")
        self._tools.stepped(what)

    async def _asked(self, what: str, places: Sequence[int], make: Callable[[], Ask], sent: list[Request]) -> Described:
        """``Over`` where another driver has the id; ``Refused``, ``Unheard``."""
        try:
            return await self._tools.control.ask(what, places, make, _PATIENCE, sent)
        except Refused as error:
            if error.code not in _FENCED:
                raise
            if not self._tools.history.is_replaced(self._tid, self._take):
                self._tools.told.breaks(invariants.CAUSE, f"a driver asks to {what}, and receives {error}")
            raise Over(str(error)) from None

    # -- a batch

    async def _batch(self, plan: BatchPlan) -> None:
        """One try. ``Over``."""
        self._close_own()
        self._runs += 1
        if self._runs > _MOST_RUNS:
            raise Over("a batch fails again and again")
        name = f"c{self.plan.number}.{self._next}.{len(self._tools.told.transactions)}"
        try:
            decision = await self._prepared(plan, name)
        except (Failed, WriteFailed, Refused, Unheard) as error:
            self._say(f"{name} fails: {error}")
            await self._sweep()
            return
        self._open = decision if plan.own is None or plan.prepares else None  # what is only open, who comes next aborts
        await trio.sleep(plan.pause)
        if not plan.commits:
            self._say(f"aborts {name}")
            await self._sweep()
        elif not await self._commit(decision, self._deciders(plan), sweeps=plan.sweeps):
            self._open = None
            await self._sweep()
            return
        self._open, self._next, self._runs = None, self._next + 1, 0
        for place in plan.repeats if plan.commits else ():
            if not await self._commit(decision, [place], sweeps=plan.sweeps):
                self._tools.told.breaks(invariants.CAUSE, f"{decision.batch_id} is committed, and can't be again")

    def _deciders(self, plan: BatchPlan) -> Sequence[int]:
        """The kproxies that can decide: the owner's open data are known where they were written."""
        return self._places if plan.own is None or plan.prepares else [plan.own.instance]

    async def _prepared(self, plan: BatchPlan, name: str) -> Decision:
        """A decision that can be asked for. ``Failed``, ``WriteFailed``, ``Refused``, ``Unheard``."""
        own = self._own = await self._begin_own(plan, name) if plan.own is not None else None
        tasks = [self._task(task, f"{name}.{nth}") for nth, task in enumerate(plan.tasks)]
        for task in tasks:
            self._workers.start_soon(task.run)
        if own is not None:
            await self._write_own(own, plan)
        for task in tasks:
            await task.done.wait()
        parts = {"": own.claimed} if own is not None else {}
        for task in tasks:
            if task.part is None:
                raise Failed("a task has failed")
            parts[task.part.member] = task.part.claimed
        return Decision(self._tid, f"{self._tid}/{self._next}", parts)

    def _task(self, plan: TaskPlan, name: str) -> Task:
        attempts = [Attempt(self._tools, one, f"{name}.{at}", self._owner) for at, one in enumerate(plan.attempts)]
        return Task(attempts, speculates=plan.speculates)

    async def _begin_own(self, plan: BatchPlan, name: str) -> Part:
        """The owner writes, too; it takes the id with that."""
        assert plan.own is not None
        own = Part(self._tools, plan.own, f"{name}.own")
        tid, timeout_ms, client_id = self._tid, self.plan.timeout_ms, f"{TXN_CLIENTS}{own.name}"
        await self._taken(
            "begin",
            [own.instance],
            lambda control: control.begin(client_id=client_id, transactional_id=tid, timeout_ms=timeout_ms),
        )
        return own

    async def _write_own(self, own: Part, plan: BatchPlan) -> None:
        await own.write(f"{TXN_CLIENTS}{own.name}")
        if plan.prepares:
            await self._asked("prepare", [own.instance], self._prepare, [])
            self._tools.stepped("own prepared")

    def _prepare(self) -> Ask:
        tid, owner = self._tid, self._owner
        return lambda control: control.prepare(tid, owner=owner)

    # -- decisions

    async def _commit(self, decision: Decision, places: Sequence[int], *, sweeps: bool) -> bool:
        """Whether it is reported as committed; if not, it can't be. ``Over``, ``Unheard``."""
        tools, tid, owner = self._tools, self._tid, self._owner
        names = set(decision.parts) - {""}
        sure = names <= tools.history.waits(tid) and "" not in decision.parts
        was_fenced = tools.told.is_fenced(tid, Producer(*owner))
        tools.history.decides(tid, names)
        tools.history.asks(decision)
        sent = tools.history.sweeps(tid) if sweeps else []

        def make() -> Ask:
            return lambda control: control.commit(
                tid, batch_id=decision.batch_id, members=sorted(names), owner=owner, abort_others=sweeps
            )

        try:
            await self._asked(f"commit {decision.batch_id}", places, make, sent)
        except Refused as error:
            self._say(f"can't commit {decision.batch_id}: {error}")
            if sure:
                tools.told.breaks(PREPARED, f"all of {decision.batch_id} is prepared, and a commit receives {error}")
            return False
        if was_fenced:
            tools.told.breaks(invariants.FENCED, f"{decision.batch_id} is committed, though a newer owner had the id")
        tools.history.done(decision)
        self._say(f"learns that {decision.batch_id} is committed")
        tools.stepped("committed")
        return True

    async def _sweep(self) -> None:
        """Aborts all that there is."""
        tid, owner = self._tid, self._owner
        sent = self._tools.history.sweeps(tid)

        def make() -> Ask:
            return lambda control: control.abort(tid, owner=owner, abort_others=True)

        try:
            await self._asked("abort everything", self._places, make, sent)
        except Refused as error:
            self._tools.told.breaks(invariants.CAUSE, f"an abort of everything receives {error}")
            raise Over(str(error)) from None
        self._tools.stepped("aborted")
