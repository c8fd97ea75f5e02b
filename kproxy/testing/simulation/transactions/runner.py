"""Runs many seeds with transactions, and cuts a failing run down to what breaks the invariant."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Final, TypeVar

from kproxy.testing.simulation.runner import Failure, Tally
from kproxy.testing.simulation.transactions.plan import Life, ProducerPlan, Taste, WorldPlan, make_plan
from kproxy.testing.simulation.transactions.world import run
from kproxy.testing.simulation.world import Outcome

T = TypeVar("T")
_CHUNK: Final = 10
#: A failing plan is run at most so often again while it is cut down.
_ATTEMPTS: Final = 150


def run_seeds(seeds: Iterable[int], taste: Taste, jobs: int) -> Iterator[Tally]:
    """Runs each seed's plan; a tally for every few, as they end."""
    rest = tuple(seeds)
    chunks = [rest[at : at + _CHUNK] for at in range(0, len(rest), _CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            yield _tally(chunk, taste)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_tally, chunks, [taste] * len(chunks))


def _tally(seeds: tuple[int, ...], taste: Taste) -> Tally:
    outcomes = [run(make_plan(seed, taste)) for seed in seeds]
    return Tally(
        runs=len(outcomes),
        sends=sum(outcome.plan.sends for outcome in outcomes),
        faults=sum(len(outcome.plan.faults) for outcome in outcomes),
        acknowledged=sum(outcome.acknowledged for outcome in outcomes),
        failures=tuple(Failure(o.plan.seed, *o.broken) for o in outcomes if o.broken is not None),
    )


def shrink(plan: WorldPlan, outcome: Outcome) -> Outcome:
    """The same broken invariant with as few faults, producers, lives and transactions as can be found."""
    assert outcome.broken is not None
    return _Shrinker(plan, outcome, outcome.broken[0]).shrink()


class _Shrinker:
    def __init__(self, plan: WorldPlan, outcome: Outcome, invariant: str) -> None:
        self._plan = plan
        self._best = outcome
        self._invariant = invariant
        self._left = _ATTEMPTS

    def shrink(self) -> Outcome:
        before = None
        while before is not self._plan and self._left:
            before = self._plan
            self._drop(lambda plan: plan.faults, lambda plan, kept: replace(plan, faults=kept))
            self._drop(lambda plan: plan.producers, lambda plan, kept: replace(plan, producers=kept))
            self._drop(lambda plan: plan.readers, lambda plan, kept: replace(plan, readers=kept))
            for number in [producer.number for producer in self._plan.producers]:
                self._drop_within(number)
        return self._best

    def _drop_within(self, number: int) -> None:
        self._drop(
            lambda plan: _producer(plan, number).lives,
            lambda plan, kept: _with(plan, replace(_producer(plan, number), lives=kept)),
        )
        for nth in range(len(_producer(self._plan, number).lives)):
            self._drop(
                lambda plan, nth=nth: _producer(plan, number).lives[nth].transactions,  # type: ignore[misc]
                lambda plan, kept, nth=nth: _with_life(  # type: ignore[misc]
                    plan, number, nth, replace(_producer(plan, number).lives[nth], transactions=kept)
                ),
            )

    def _fails(self, plan: WorldPlan) -> bool:
        if not self._left:
            return False
        self._left -= 1
        outcome = run(plan)
        if outcome.broken is None or outcome.broken[0] != self._invariant:
            return False
        self._plan, self._best = plan, outcome
        return True

    def _drop(
        self, of: Callable[[WorldPlan], tuple[T, ...]], put: Callable[[WorldPlan, tuple[T, ...]], WorldPlan]
    ) -> None:
        """Leaves out as many of some items as can be: halves first, then ever smaller runs of them."""
        size = max(1, len(of(self._plan)) // 2)
        while size:
            at = 0
            while at < len(items := of(self._plan)):
                if not self._fails(put(self._plan, items[:at] + items[at + size :])):
                    at += size
            size //= 2


def _producer(plan: WorldPlan, number: int) -> ProducerPlan:
    return next(producer for producer in plan.producers if producer.number == number)


def _with(plan: WorldPlan, changed: ProducerPlan) -> WorldPlan:
    producers = tuple(changed if producer.number == changed.number else producer for producer in plan.producers)
    return replace(plan, producers=producers)


def _with_life(plan: WorldPlan, number: int, nth: int, life: Life) -> WorldPlan:
    producer = _producer(plan, number)
    return _with(plan, replace(producer, lives=(*producer.lives[:nth], life, *producer.lives[nth + 1 :])))
