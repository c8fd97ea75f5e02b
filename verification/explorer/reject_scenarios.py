"""Small worlds with data of which the log says nothing, or of which an instance has not read what it says."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kproxy.txn.ids import TXN_BITS
from verification.explorer.client import Client
from verification.explorer.drivers import Batch, Driver
from verification.explorer.instance import Instance
from verification.explorer.scripts import Script, Txn
from verification.explorer.world import PARTITIONS, Stored, World

_SCRIPT: Final = Script((Txn((1,)),), second=True)
#: A batch of a transaction that a lost log knew.
_STRAY: Final = Stored(TXN_BITS | 90, 0, 0, 0, "stray")


class RejectScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    budget: Mapping[str, int]
    has_stray: bool = False
    has_member: bool = False

    def make(self) -> World:
        """Make the world at its beginning."""
        world = World({"again": 2, **self.budget})
        if self.has_stray:
            world.partitions[PARTITIONS[0]].rows.append(_STRAY)
        world.instances = [Instance(world, name) for name in "ab"]
        client = Driver(world, 1, Batch(has_own=False)) if self.has_member else Client(world, 1, _SCRIPT)
        world.clients = [client]
        client.start()
        return world


REJECT_SCENARIOS: Final = (
    RejectScenario("stray data", "data are met that a lost log knew", {"rejects": 1}, has_stray=True),
    RejectScenario("met before they are read", "readers of an instance that lags meet a client's data", {"rejects": 2}),
    RejectScenario("a member met", "the same with a member's", {"rejects": 2}, has_member=True),
    RejectScenario("named by an operator", "a producer id is named that nobody has met", {"guesses": 1}),
)
