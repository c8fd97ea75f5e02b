"""Small worlds of clients without transactions, whose kproxy makes them: by hand, as members, or for each request."""

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from verification.explorer.managed import HandDriver, ManagedWorld, Plan, SingleClient
from verification.explorer.managed_instance import ManagedInstance
from verification.explorer.world import World


class ManagedScenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    plans: tuple[Plan, ...]
    budget: Mapping[str, int]
    instances: str = "a"
    is_balanced: bool = False

    def make(self) -> World:
        """Make the world at its beginning."""
        world = ManagedWorld({"again": 2, **self.budget})
        world.is_balanced = self.is_balanced
        world.instances = [ManagedInstance(world, name) for name in self.instances]
        make = partial(HandDriver, world)
        world.clients = [make(number, plan) for number, plan in enumerate(self.plans, 1)] or [SingleClient(world, 1)]
        for client in world.clients:
            client.start()
        return world


_ONE: Final = Plan()
_SHORT: Final = Plan(records=1)
_TAKING: Final = Plan(records=1, tries=1, takes=True, at=1)
_PREPARED: Final = Plan(records=1, prepares=True)
_MEMBER: Final = Plan(records=1, prepares=True, is_member=True, takes=True)

MANAGED_SCENARIOS: Final = (
    ManagedScenario("by hand, unheard", "a response is not heard", (_ONE,), {"unheard": 1}),
    ManagedScenario(
        "by hand, balanced", "and its connection ends in good order", (_ONE,), {"unheard": 1}, is_balanced=True
    ),
    ManagedScenario("by hand, killed", "kproxy is killed at any step", (_SHORT,), {"crash": 1}),
    ManagedScenario("by hand, lost", "the log loses something", (_ONE,), {"lost": 1}),
    ManagedScenario("by hand, overdue", "a transaction takes too long", (_ONE,), {"time": 1}),
    ManagedScenario("by hand, apart, overdue", "between two requests", (_ONE._replace(is_apart=True),), {"time": 1}),
    ManagedScenario("by hand, refused", "a batch is refused", (_ONE,), {"refuse": 1}),
    ManagedScenario("by hand, taken", "another driver takes the id", (_SHORT._replace(tries=1), _TAKING), {}, "ab"),
    ManagedScenario("prepared by hand, killed", "kproxy is killed at any step", (_PREPARED,), {"crash": 1}),
    ManagedScenario("prepared by hand, unheard", "a response is not heard", (_PREPARED,), {"unheard": 1}),
    ManagedScenario("by member, killed", "kproxy is killed at any step", (_MEMBER,), {"crash": 1}),
    ManagedScenario(
        "by member, balanced",
        "a response is not heard, and nobody counts",
        (_MEMBER._replace(counts=False),),
        {"unheard": 1},
        is_balanced=True,
    ),
    ManagedScenario("by request, unheard", "a response is not heard", (), {"unheard": 1}),
    ManagedScenario("by request, killed", "kproxy is killed at any step", (), {"crash": 1}),
    ManagedScenario("by request, lost", "the log loses something", (), {"lost": 1}),
    ManagedScenario("by request, refused", "a batch is refused", (), {"refuse": 1}),
)
