"""Searches to be made: each small world with kproxy's own rules, and with each rule left out that it shows."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from verification.explorer.broker_scenarios import BROKER_SCENARIOS, BrokerScenario
from verification.explorer.broker_variants import BROKER_VARIANTS
from verification.explorer.consuming import CONSUMING_SCENARIOS, ConsumingScenario
from verification.explorer.driver_variants import DRIVER_VARIANTS
from verification.explorer.drivers import DRIVER_SCENARIOS, DriverScenario
from verification.explorer.group import GROUP_SCENARIOS, GroupScenario
from verification.explorer.log_scenarios import LOG_SCENARIOS
from verification.explorer.log_variants import LOG_VARIANTS
from verification.explorer.managed_broker import MANAGED_BROKER_SCENARIOS, ManagedBrokerScenario
from verification.explorer.managed_scenarios import MANAGED_SCENARIOS, ManagedScenario
from verification.explorer.managed_variants import MANAGED_VARIANTS
from verification.explorer.member_scenarios import MEMBER_SCENARIOS, MemberScenario
from verification.explorer.member_variants import MEMBER_VARIANTS
from verification.explorer.preparing import PREPARING_SCENARIOS, PreparingScenario
from verification.explorer.reject_scenarios import REJECT_SCENARIOS, RejectScenario
from verification.explorer.scenarios import SCENARIOS, Scenario, bounded
from verification.explorer.search import Found, search
from verification.explorer.variant import Variant
from verification.explorer.variants import VARIANTS

Small: TypeAlias = (
    Scenario
    | BrokerScenario
    | ConsumingScenario
    | DriverScenario
    | GroupScenario
    | ManagedBrokerScenario
    | ManagedScenario
    | MemberScenario
    | PreparingScenario
    | RejectScenario
)
#: All worlds.
WORLDS: Final[tuple[Small, ...]] = (
    *SCENARIOS,
    *LOG_SCENARIOS,
    *GROUP_SCENARIOS,
    *PREPARING_SCENARIOS,
    *REJECT_SCENARIOS,
    *BROKER_SCENARIOS,
    *DRIVER_SCENARIOS,
    *MANAGED_SCENARIOS,
    *MANAGED_BROKER_SCENARIOS,
    *CONSUMING_SCENARIOS,
    *MEMBER_SCENARIOS,
)
#: All rules that are left out in turn.
RULES: Final = (*VARIANTS, *LOG_VARIANTS, *BROKER_VARIANTS, *DRIVER_VARIANTS, *MANAGED_VARIANTS, *MEMBER_VARIANTS)


class Job(NamedTuple):
    """One search."""

    scenario: Small
    variant: Variant | None
    most_states: int

    @property
    def name(self) -> str:
        """Name the world, and the rule that is left out."""
        return self.scenario.name if self.variant is None else f"{self.scenario.name}: {self.variant.name}"

    def run(self) -> Found:
        """Search, with the rule left out if one is."""
        with bounded():
            if self.variant is None:
                return search(self.scenario.make, self.most_states)
            with self.variant.applied():
                return search(self.scenario.make, self.most_states, self.variant.breaks)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process finds it by its names."""
        return _named, (self.scenario.name, self.variant and self.variant.name, self.most_states)

    def is_surprise(self, found: Found) -> bool:
        """Whether kproxy's own rules do not hold, or one that is left out is not missed."""
        return bool(found.traces) if self.variant is None else self.variant.breaks not in found.traces


def _named(scenario: str, variant: str | None, most_states: int) -> Job:
    world = next(one for one in WORLDS if one.name == scenario)
    rule = next((one for one in RULES if (one.scenario, one.name) == (scenario, variant)), None)
    return Job(world, rule, most_states)


def jobs(names: Sequence[str], most_states: int, *, own: bool, broken: bool) -> list[Job]:
    """The searches whose name has one of ``names`` in it, or all."""
    by_name = {scenario.name: scenario for scenario in WORLDS}
    found = [Job(scenario, None, most_states) for scenario in WORLDS if own]
    found += [Job(by_name[variant.scenario], variant, most_states) for variant in RULES if broken]
    return [job for job in found if not names or any(part in job.name for part in names)]
