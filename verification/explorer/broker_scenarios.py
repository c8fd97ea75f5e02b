"""Small worlds where the broker decides: a client of the first protocol, and a kproxy that is restarted."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from verification.explorer.broker_instance import BrokerInstance
from verification.explorer.broker_world import BrokerWorld
from verification.explorer.client import Client
from verification.explorer.scripts import Script, Txn
from verification.explorer.world import World

_TWO: Final = Script((Txn((2,)), Txn((2,))))
_TWO_SHORT: Final = Script((Txn((1,)), Txn((1,))))
_ONE_AND_TWO: Final = Script((Txn((1,)), Txn((2,))))
_ONE: Final = Script((Txn((2,)),))
_SHORT: Final = Script((Txn((1,)),))
#: What happens first.
_OVER_A_COMMIT: Final = ("client 1 asks a: EndTxn commit", "a is killed")
_AT_FIRST: Final = ("the log takes epoch 0", "a is killed")
_EARLY: Final = ("client 1 asks a: AddPartitionsToTxn", "a is killed", "the broker takes a's InitProducerId")


class BrokerScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    script: Script
    #: Of ``transaction.version``.
    level: int
    #: As in ``Scenario``.
    budget: Mapping[str, int]
    opening: tuple[str, ...] = ()

    def make(self) -> World:
        """Make the world at its beginning."""
        world = BrokerWorld(self.budget, self.level)
        world.instances = [BrokerInstance(world, "a")]
        world.clients = [Client(world, 1, self.script)]
        world.clients[0].start()
        world.open(self.opening)
        return world


def _both(
    name: str, about: str, script: Script, *opening: str, again: int = 4, **budget: int
) -> Iterator[BrokerScenario]:
    """Yield it on brokers of both levels."""
    for level in (1, 2):
        yield BrokerScenario(f"{name}, level {level}", about, script, level, {"again": again, **budget}, opening)


BROKER_SCENARIOS: Final = (
    *_both("restarted", "kproxy is killed at any step", _TWO, crash=1),
    *_both("restarted twice", "and again, while it continues", _ONE_AND_TWO, crash=2),
    *_both("restarted thrice", "and again and again", _SHORT, *_AT_FIRST, crash=3),
    *_both("restarted, replaced", "another producer takes the id", _ONE, crash=1, take=1),
    *_both("restarted twice, replaced", "the same, and kproxy is killed again", _SHORT, crash=2, take=1),
    *_both("restarted, slow log", "the log is too slow", _ONE_AND_TWO, crash=1, slow=1),
    *_both("killed over a commit", "and again and again", _SHORT, *_OVER_A_COMMIT, crash=3),
    *_both("killed over a commit, slow log", "and kproxy is killed again", _ONE, *_OVER_A_COMMIT, crash=2, slow=1),
    BrokerScenario(
        "restarted early, slow log, level 2",
        "so is the coordinator, and kproxy is killed again",
        _TWO_SHORT,
        2,
        {"again": 4, "crash": 2, "slow": 1, "ahead": 1},
        _EARLY,
    ),
    *_both("restarted, late log", "the log takes late the entry of a killed kproxy", _SHORT, crash=2, late_log=1),
    *_both("restarted, overdue", "the broker ends what takes too long", _ONE, crash=1, overdue=1),
    *_both("repeated commit", "a commit that kproxy repeats", _ONE, take=1, repeat=1),
)
