"""All drivers of a run with their workers, and who looks after what they leave."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from random import Random
from typing import Final, TypeAlias

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import Described, OwnerId
from verification.simulation.transactions import invariants
from verification.simulation.transactions.calls import Calls
from verification.simulation.transactions.control_calls import Ask, ControlClient, ControlPost, Refused, Unheard
from verification.simulation.transactions.history import TransactionHistory
from verification.simulation.transactions.member_driver import Driver
from verification.simulation.transactions.member_history import PREPARED, MemberHistory
from verification.simulation.transactions.member_parts import Tools
from verification.simulation.transactions.member_plans import MemberGroupPlan

CallsOf: TypeAlias = Callable[[str, int, float], Calls]
"""Connections by client.id, kproxy and the time-out of a request."""

#: Of workers, whose records are ordered each for itself; all other producers have the numbers below.
_FIRST: Final = 1_000_000
_TIDY: Final = 10.0
#: A member that is not prepared is ended by its id's time-out, this much later at most.
_SETTLED: Final = 90.0
_AGAIN: Final = 1.0
_UNKNOWN: Final = frozenset({ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})


class MemberGroups:
    """The groups of members of one run."""

    def __init__(
        self, plans: Iterable[MemberGroupPlan], seed: int, post: ControlPost, calls: CallsOf, told: TransactionHistory
    ) -> None:
        """``post`` carries their control requests, ``calls`` makes connections for data."""
        self.history = MemberHistory(told)
        self._told = told
        self._seed = seed
        self._post = post
        self._calls = calls
        self._numbers = count(_FIRST)
        self.drivers = [self.driver(plan) for plan in plans]

    def driver(self, plan: MemberGroupPlan, stepped: Callable[[str], None] = lambda _: None) -> Driver:
        """One; ``stepped`` hears of each step that is through."""
        rng = Random(f"{self._seed} crew {plan.number}")
        say = partial(self._say, plan.number)
        control = ControlClient(self._post, plan.request_timeout, rng, say)
        tools = Tools(
            plan=plan,
            calls=lambda client_id, instance: self._calls(client_id, instance, plan.request_timeout),
            control=control,
            told=self._told,
            history=self.history,
            rng=rng,
            numbers=lambda: next(self._numbers),
            stepped=stepped,
        )
        return Driver(tools)

    def _say(self, number: int, text: str) -> None:
        self._told.note(f"crew {number} {text}")

    # -- at the end

    async def tidy(self, instances: int) -> None:
        """Aborts what is prepared and has nobody any more; what is only open has to end by itself."""
        for tid in sorted(self.history.ids()):
            client = ControlClient(self._post, _TIDY, Random(f"{self._seed} tidy {tid}"), partial(self._say, -1))
            try:
                with trio.move_on_after(_SETTLED) as scope:
                    await self._tidy(tid, client, range(instances))
            except Refused as error:
                if error.code not in _UNKNOWN:  # nobody came so far as to take it
                    self._told.breaks(invariants.CAUSE, f"{tid} is looked after: {error}")
            except Unheard as error:
                self._told.breaks(invariants.STUCK, f"{tid} can't be looked after: {error!r}")
            else:
                if scope.cancelled_caught:
                    self._told.breaks(invariants.STUCK, f"{tid} has parts that nobody ends")

    async def _tidy(self, tid: str, client: ControlClient, places: range) -> None:
        while True:
            found = await self._described(tid, client, places)
            prepared = [part.name for part in found.parts if part.prepared]
            lost = self.history.waits(tid) - set(prepared)
            if lost:
                self._told.breaks(PREPARED, f"{' '.join(sorted(lost))} of {tid} is not prepared any more")
            if prepared:
                self.history.decides(tid, set(prepared))
                await self._abort(tid, found.owner, sorted({*prepared} - {""}), client, places)
            elif not found.parts and found.state != "Ongoing":
                return
            await trio.sleep(_AGAIN)

    async def _abort(self, tid: str, owner: OwnerId, names: list[str], client: ControlClient, places: range) -> None:
        def make() -> Ask:
            return lambda control: control.abort(tid, owner=owner, members=names)

        await client.ask("tidy", places, make, _SETTLED, [])

    async def _described(self, tid: str, client: ControlClient, places: range) -> Described:
        return await client.ask("describe", places, lambda: lambda control: control.describe(tid), _SETTLED, [])
