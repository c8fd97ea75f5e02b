"""Small worlds of members whose data are in transactions of the broker's."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from verification.explorer.member_driver import Batches, MembersDriver
from verification.explorer.member_instance import MemberInstance
from verification.explorer.member_world import MemberWorld
from verification.explorer.world import World


class MemberScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    drivers: tuple[Batches, ...]
    #: Of ``transaction.version``.
    level: int
    budget: Mapping[str, int]
    instances: str
    #: What happens before the second driver begins, by the beginning of its text.
    opening: tuple[str, ...] = ()

    def make(self) -> World:
        """Make the world at its beginning."""
        world = MemberWorld({"again": 3, **self.budget}, self.level)
        world.instances = [MemberInstance(world, name) for name in self.instances]
        drivers = [MembersDriver(world, number, batches) for number, batches in enumerate(self.drivers, 1)]
        world.clients = [drivers[0]]
        drivers[0].start()
        world.open(self.opening)
        for driver in drivers[1:]:
            world.clients.append(driver)
            driver.start()
        return world


def _both(
    name: str, about: str, *drivers: Batches, instances: str = "a", opening: tuple[str, ...] = (), **budget: int
) -> Iterator[MemberScenario]:
    """Yield it on brokers of both levels."""
    for level in (1, 2):
        yield MemberScenario(f"{name}, level {level}", about, drivers, level, budget, instances, opening)


_ONE: Final = Batches(number=1)
_TWO: Final = Batches()
_PAIR: Final = Batches(number=1, members=2)
_LAST: Final = Batches(number=1, tries=1)
_TAKES: Final = Batches(number=0, at=1)
#: What happens first.
_WRITTEN: Final = ("a hears of 1.0.1", "a is killed")
_COMMITTED: Final = ("client 1 asks a: commit 1",)
_DECIDED: Final = (*_COMMITTED, "a/commit 1: DECISION arrives")

MEMBER_SCENARIOS: Final = (
    *_both("members, unanswered", "a request has no response, and comes late", _TWO, unanswered=1),
    *_both("members, unanswered twice", "two such from the end of a batch on", _TWO, opening=_DECIDED, unanswered=2),
    *_both("members, killed", "kproxy is killed at any step", _ONE, crash=1),
    *_both("members, killed twice", "while it ends a batch, and again", _ONE, opening=_COMMITTED, crash=2),
    *_both(
        "members, elsewhere", "another instance ends them, too", _LAST, instances="ab", opening=_DECIDED, unanswered=1
    ),
    *_both(
        "members, taken",
        "kproxy is killed, and another driver takes the id elsewhere",
        _LAST,
        _TAKES,
        instances="ab",
        opening=_WRITTEN,
        crash=1,
    ),
    *_both("members, overdue", "the broker aborts one of two that takes too long", _PAIR, overdue=1),
    *_both("members, a pair", "kproxy is killed while it ends two", _PAIR, opening=_COMMITTED, crash=1),
    *_both("members, lost", "the log loses something", _ONE, lost=1),
)
