"""Runs many seeds, in several processes if asked to, and counts what came of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final, TypeAlias

from verification.simulation.world import Outcome

RunSeed: TypeAlias = Callable[[int], Outcome]
"""Makes the plan of a seed and runs it; several processes need one that can be pickled."""

_CHUNK: Final = 25


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed whose run broke an invariant."""

    seed: int
    invariant: str
    how: str


@dataclass(frozen=True, slots=True)
class Tally:
    """The sums of some runs."""

    runs: int
    sends: int
    faults: int
    acknowledged: int
    failures: tuple[Failure, ...]
    #: As ``Outcome.seen``.
    seen: Counter[str] = field(default_factory=Counter)


def run_seeds(seeds: Iterable[int], run_seed: RunSeed, jobs: int, chunk: int = _CHUNK) -> Iterator[Tally]:
    """Runs the plan of each seed; a tally for every ``chunk``, as they end."""
    rest = tuple(seeds)
    chunks = [rest[at : at + chunk] for at in range(0, len(rest), chunk)]
    if jobs == 1:
        for some in chunks:
            yield _tally(some, run_seed)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_tally, chunks, [run_seed] * len(chunks))


def _tally(seeds: tuple[int, ...], run_seed: RunSeed) -> Tally:
    outcomes = [run_seed(seed) for seed in seeds]
    return Tally(
        runs=len(outcomes),
        sends=sum(outcome.plan.sends for outcome in outcomes),
        faults=sum(len(outcome.plan.faults) for outcome in outcomes),
        acknowledged=sum(outcome.acknowledged for outcome in outcomes),
        seen=sum((Counter(outcome.seen) for outcome in outcomes), Counter()),
        failures=tuple(Failure(o.plan.seed, *o.broken) for o in outcomes if o.broken is not None),
    )


def first_failure(seeds: Iterable[int], run_seed: RunSeed) -> Outcome | None:
    """The outcome of the first seed whose run breaks an invariant."""
    return next((outcome for outcome in map(run_seed, seeds) if outcome.broken is not None), None)
