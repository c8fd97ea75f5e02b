"""Clients without transactions, whose kproxy makes them at the broker's coordinator: by hand, or for each request.

Kproxy keeps nothing of them in a log. So where it is killed over a commit, a driver that repeats the commit hears that
nothing is open, and knows no more: it stops, as docs/transactions.md says.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.txn.procedures.broker_control import BrokerControl
from kproxy.txn.procedures.hand_control import not_here
from kproxy.txn.procedures.log_control import LogControl
from kproxy.txn.view import IdView
from verification.explorer.broker_instance import BrokerInstance
from verification.explorer.broker_world import BrokerWorld
from verification.explorer.client import REPLACED, Abortable, Fatal
from verification.explorer.managed import HandDriver, ManagedWorld, Plan, SingleClient
from verification.explorer.managed_instance import HandPorts, Managing
from verification.explorer.world import World


class ManagedBrokerWorld(BrokerWorld, ManagedWorld):
    """The broker's coordinator, and clients that know nothing of it."""

    may_take_back = True


class EmptyLog(HandPorts):
    """``procedures.log_control.LogPorts`` of a log that knows no id: the broker decides all."""

    async def found(self, name: str) -> IdView:
        """Answer as the product does."""
        raise not_here(name)


class ManagedBrokerInstance(BrokerInstance, Managing):
    """One process where the broker decides."""

    def __init__(self, world: BrokerWorld, name: str, life: int = 0) -> None:
        """Begin with nothing for any client."""
        super().__init__(world, name, life)
        tools = self.prepare()
        at_log = LogControl(EmptyLog(self), self.owners, self.begun)
        self.control = BrokerControl(tools, self.begun, at_log, lambda _: True)


class BrokerDriver(HandDriver):
    """A driver that knows what TRANSACTIONAL_ID_NOT_FOUND says: nothing of it is open at this kproxy."""

    async def _hand(self, what: str, do: Any) -> Any:
        asked = 0

        async def count(instance: Managing) -> Any:
            nonlocal asked
            asked += 1
            return await do(instance)

        try:
            return await super()._hand(what, count)
        except Fatal:
            is_first = asked == 1 or not what.startswith("commit")
            if self.refused[1] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND and is_first:
                raise Abortable(what) from None  # no commit was asked for before
            raise

    async def _write_records(self, payloads: Sequence[str]) -> None:
        try:
            await super()._write_records(payloads)
        except Fatal:
            if self.refused[1] not in REPLACED or "crash" not in self.world.budget.taken:
                raise
            # a request of a killed kproxy was late, and took the id: the driver begins again
            self.refused = "", ErrorCode.NONE
            raise Abortable(f"{payloads}") from None


class ManagedBrokerScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    #: None: a client of ``per.request``.
    plan: Plan | None
    #: Of ``transaction.version``.
    level: int
    budget: Mapping[str, int]
    is_balanced: bool = False

    def make(self) -> World:
        """Make the world at its beginning."""
        world = ManagedBrokerWorld({"again": 2, **self.budget}, self.level)
        world.is_balanced = self.is_balanced
        world.instances = [ManagedBrokerInstance(world, "a")]
        world.clients = [SingleClient(world, 1) if self.plan is None else BrokerDriver(world, 1, self.plan)]
        world.clients[0].start()
        return world


def _both(
    name: str, about: str, plan: Plan | None, *, is_balanced: bool = False, **budget: int
) -> Iterator[ManagedBrokerScenario]:
    """Yield it on brokers of both levels."""
    for level in (1, 2):
        title = f"{name} at the broker, level {level}"
        yield ManagedBrokerScenario(title, about, plan, level, budget, is_balanced)


_ONE: Final = Plan()
_SHORT: Final = Plan(records=1)

MANAGED_BROKER_SCENARIOS: Final[Sequence[ManagedBrokerScenario]] = (
    *_both("by hand, unheard", "a response is not heard", _ONE, unheard=1),
    *_both("by hand, balanced", "and its connection ends in good order", _ONE, is_balanced=True, unheard=1),
    *_both("by hand, killed", "kproxy is killed at any step", _SHORT, crash=1),
    *_both("by hand, overdue", "the broker ends what takes too long", _ONE, overdue=1),
    *_both("by hand, refused", "a batch is refused", _ONE, refuse=1),
    *_both("by hand, replaced", "another producer takes the id", _SHORT, take=1),
    *_both("by hand, repeated", "a commit that kproxy repeats", _SHORT, take=1, repeat=1),
    *_both("by request, unheard", "a response is not heard", None, unheard=1),
    *_both("by request, killed", "kproxy is killed at any step", None, crash=1),
    *_both("by request, overdue", "the broker ends what takes too long", None, overdue=1),
    *_both("by request, refused", "a batch is refused", None, refuse=1),
)
