"""A transactional producer that does what its plan says, one process after the other."""

from collections.abc import Callable
from random import Random

import trio

from verification.simulation.transactions import invariants
from verification.simulation.transactions.coordinators import Fatal
from verification.simulation.transactions.history import Claimed, TransactionHistory
from verification.simulation.transactions.plan import Life, ProducerPlan, TransactionPlan
from verification.simulation.transactions.process import Abortable, Process
from verification.simulation.transactions.ways import Steps


class TransactionalProducer:
    """All lives of one."""

    def __init__(
        self, plan: ProducerPlan, make: Callable[[Life, int, Random], Steps], history: TransactionHistory, seed: int
    ) -> None:
        """``make`` makes the process of a life, by its number, with what decides its chances."""
        self.plan = plan
        self._make = make
        self._history = history
        self._rng = Random(f"{seed} producer {plan.number}")

    async def run(self) -> None:
        """One life after the other."""
        for nth, life in enumerate(self.plan.lives):
            await trio.sleep(life.gap)
            process = self._make(life, nth, self._rng)
            with trio.move_on_after(life.dies_after if life.dies_after is not None else float("inf")) as scope:
                await self._live(process, life)
            if scope.cancelled_caught:
                process.killed()
            process.close()

    async def _live(self, process: Steps, life: Life) -> None:
        """Runs a life until its work is done, or it can't continue."""
        try:
            await process.initialize()
            for nth, planned in enumerate(life.transactions):
                await trio.sleep(planned.gap)
                await self._transaction(process, planned, process.begin(nth))
        except Fatal as error:
            process.say(f"ends: {error}")
        except Abortable as error:  # of what begins no transaction
            self._history.breaks(invariants.CAUSE, f"producer {self.plan.number} receives {error}")
        else:
            process.say("is done")

    async def _transaction(self, process: Steps, planned: TransactionPlan, claimed: Claimed) -> None:
        renew = False
        if isinstance(process, Process):
            process.route.schedule(planned.turns)
        try:
            await self._work(process, planned, claimed)
            if planned.commits:
                await process.end(claimed, committed=True)
                return
        except Abortable as error:
            process.say(f"aborts {claimed.name}: {error}")
            renew = error.renew
        try:
            await process.end(claimed, committed=False)
        except Abortable as error:
            self._history.breaks(invariants.CAUSE, f"an abort of {claimed.name} is answered with {error}")
            raise Fatal(str(error)) from error
        if renew and not self.plan.second_version:
            await process.initialize(again=True)

    async def _work(self, process: Steps, planned: TransactionPlan, claimed: Claimed) -> None:
        for one in planned.rounds:
            await trio.sleep(one.gap)
            await process.write(claimed, one.batches)
        if planned.moves and isinstance(process, Process):
            await process.move(claimed, self._history.next_input(f"group-{self.plan.number}"))
        await trio.sleep(planned.pause)
