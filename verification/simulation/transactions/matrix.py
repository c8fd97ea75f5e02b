"""Seeds spread over homes and kinds of faults: each kind alone in each home, and all of them together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Final

from verification.simulation.transactions.homes import FAULTS, faults_of, lone_faults_of
from verification.simulation.transactions.plan import Taste
from verification.simulation.transactions.world import run_seed
from verification.simulation.world import Outcome

#: After so many kinds alone comes a run with all kinds of its home.
_ALONE: Final = 4


@dataclass(frozen=True, slots=True)
class Matrix:
    """The runs that seeds are mapped to; a seed always gives the same one."""

    tastes: tuple[Taste, ...]

    def of(self, seed: int) -> Taste:
        """The taste for the run of a seed."""
        return self.tastes[seed % len(self.tastes)]

    def run(self, seed: int) -> Outcome:
        """Runs the plan of a seed."""
        return run_seed(self.of(seed), seed)


def each_fault(taste: Taste) -> Matrix:
    """A run for each home and kind of fault of a taste, and in between runs with all kinds."""
    tastes: list[Taste] = []
    for home in taste.homes:
        lone = lone_faults_of(home) if taste.faults == FAULTS else ()
        kinds = (*dict.fromkeys(faults_of(home, taste.faults)), *lone)
        for at in range(0, len(kinds), _ALONE):
            tastes += [replace(taste, homes=(home,), faults=(kind,)) for kind in kinds[at : at + _ALONE]]
            tastes.append(replace(taste, homes=(home,)))
    return Matrix(tuple(tastes) or (taste,))


def repetition(taste: Taste, seed: int, all_faults: Sequence[str]) -> str:
    """The options that run the plan of a seed again."""
    homes = "".join(f" --home {home.value}" for home in taste.homes)
    faults = f" --faults {quote(','.join(taste.faults))}" if taste.faults != tuple(all_faults) else ""
    roam = " --roam" if taste.roams else ""
    return f"--first-seed {seed} --seeds 1{homes}{faults}{roam}"
