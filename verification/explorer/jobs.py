"""What is to be searched: each small world with kproxy's own rules, and with each rule left out that it shows."""

from collections.abc import Sequence
from typing import NamedTuple

from verification.explorer.scenarios import SCENARIOS, Scenario, bounded
from verification.explorer.search import Found, search
from verification.explorer.variants import VARIANTS, Variant


class Job(NamedTuple):
    """One search."""

    scenario: Scenario
    variant: Variant | None
    most_states: int

    @property
    def name(self) -> str:
        """Of the world, and of the rule that is left out."""
        return self.scenario.name if self.variant is None else f"{self.scenario.name}: {self.variant.name}"

    def run(self) -> Found:
        """With the rule left out, if one is."""
        with bounded():
            if self.variant is None:
                return search(self.scenario.make, self.most_states)
            with self.variant.applied():
                return search(self.scenario.make, self.most_states, self.variant.breaks)

    def is_surprise(self, found: Found) -> bool:
        """Whether kproxy's own rules do not hold, or one that is left out is not missed."""
        return bool(found.traces) if self.variant is None else self.variant.breaks not in found.traces


def jobs(names: Sequence[str], most_states: int, *, own: bool, broken: bool) -> list[Job]:
    """The searches whose name has one of ``names`` in it, or all."""
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    found = [Job(scenario, None, most_states) for scenario in SCENARIOS if own]
    found += [Job(by_name[variant.scenario], variant, most_states) for variant in VARIANTS if broken]
    return [job for job in found if not names or any(part in job.name for part in names)]
