"""Runs many seeds, in several processes if asked to, and cuts a failing run down to what breaks the invariant."""

import gc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Final, TypeVar

from kproxy.testing.simulation.plan import ClientPlan, Plan, Send, Taste, make_plan
from kproxy.testing.simulation.world import Outcome, run

T = TypeVar("T")
_CHUNK: Final = 25
#: A failing plan is run at most so often again while it is cut down.
_ATTEMPTS: Final = 400


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed whose run broke an invariant."""

    seed: int
    invariant: str
    how: str


@dataclass(frozen=True, slots=True)
class Tally:
    """What some runs came to."""

    runs: int
    sends: int
    faults: int
    acknowledged: int
    failures: tuple[Failure, ...]


def run_seeds(seeds: Iterable[int], taste: Taste, jobs: int) -> Iterator[Tally]:
    """Runs each seed's plan; a tally for every few, as they end."""
    rest = tuple(seeds)
    chunks = [rest[at : at + _CHUNK] for at in range(0, len(rest), _CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            yield _tally(chunk, taste)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=gc.freeze) as pool:
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


def first_failure(seeds: Iterable[int], taste: Taste) -> Outcome | None:
    """The outcome of the first seed whose run breaks an invariant."""
    for seed in seeds:
        outcome = run(make_plan(seed, taste))
        if outcome.broken is not None:
            return outcome
    return None


def shrink(outcome: Outcome) -> Outcome:
    """The same broken invariant with as few faults, clients, requests and records as can be found."""
    assert outcome.broken is not None
    return _Shrinker(outcome, outcome.broken[0]).shrink()


class _Shrinker:
    def __init__(self, outcome: Outcome, invariant: str) -> None:
        self._best = outcome
        self._invariant = invariant
        self._left = _ATTEMPTS

    def shrink(self) -> Outcome:
        before = None
        while before is not self._best and self._left:
            before = self._best
            self._drop(lambda plan: plan.clients, lambda plan, kept: replace(plan, clients=kept))
            self._drop(lambda plan: plan.faults, lambda plan, kept: replace(plan, faults=kept))
            for number in [client.number for client in self._best.plan.clients]:
                self._drop_sends(number)
                self._drop_batches(number)
        return self._best

    def _fails(self, plan: Plan) -> bool:
        if not self._left:
            return False
        self._left -= 1
        outcome = run(plan)
        if outcome.broken is None or outcome.broken[0] != self._invariant:
            return False
        self._best = outcome
        return True

    def _drop(self, of: Callable[[Plan], tuple[T, ...]], put: Callable[[Plan, tuple[T, ...]], Plan]) -> None:
        """Leaves out as many of some items as can be: halves first, then ever smaller runs of them."""
        size = max(1, len(of(self._best.plan)) // 2)
        while size:
            at = 0
            while at < len(items := of(self._best.plan)):
                if not self._fails(put(self._best.plan, items[:at] + items[at + size :])):
                    at += size
            size //= 2

    def _drop_sends(self, number: int) -> None:
        """Leaves out requests; those behind come when they came before."""
        due = 0.0
        times = {}
        for send in _client(self._best.plan, number).sends:
            due += send.gap
            times[send.batches] = due

        def put(plan: Plan, kept: tuple[Send, ...]) -> Plan:
            befores = [0.0, *(times[send.batches] for send in kept)]
            timed = [
                replace(send, gap=times[send.batches] - before) for send, before in zip(kept, befores, strict=False)
            ]
            return _with(plan, replace(_client(plan, number), sends=tuple(timed)))

        self._drop(lambda plan: _client(plan, number).sends, put)

    def _drop_batches(self, number: int) -> None:
        """Leaves out partitions, and records but the first of each batch."""
        for nth in range(len(_client(self._best.plan, number).sends)):
            for smaller in _smaller(_client(self._best.plan, number).sends[nth].batches):
                client = _client(self._best.plan, number)
                sends = list(client.sends)
                sends[nth] = replace(sends[nth], batches=smaller)
                if self._fails(_with(self._best.plan, replace(client, sends=tuple(sends)))):
                    break


_Batches = tuple[tuple[int, tuple[bytes, ...]], ...]


def _smaller(batches: _Batches) -> Iterator[_Batches]:
    if len(batches) > 1:
        for batch in batches:
            yield ((batch[0], batch[1][:1]),)
            yield (batch,)
    if any(len(values) > 1 for _, values in batches):
        yield tuple((index, values[:1]) for index, values in batches)


def _client(plan: Plan, number: int) -> ClientPlan:
    return next(client for client in plan.clients if client.number == number)


def _with(plan: Plan, changed: ClientPlan) -> Plan:
    clients = tuple(changed if client.number == changed.number else client for client in plan.clients)
    return replace(plan, clients=clients)
