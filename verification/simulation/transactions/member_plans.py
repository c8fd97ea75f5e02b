"""Plans of groups of producers in one run: a driver owns a transactional id, its workers are members at any kproxy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeVar

T = TypeVar("T")

#: Partitions and how many records each gets, one Produce request for each row.
Writes = tuple[tuple[tuple[int, int], ...], ...]

_LIVES: Final = (1, 2, 2, 3)
_PAUSES: Final = (0.0, 0.0, 0.1, 0.5, 5.0, 20.0)
_GAPS: Final = (0.0, 0.0, 0.05, 0.4)


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """One worker that tries to do a task as a member."""

    instance: int
    gap: float
    writes: Writes
    #: It ends before it prepares: it gives its part up, or says nothing.
    fails: bool = False
    gives_up: bool = False
    #: Whether it sends once more, though it has failed, what had no response, as a client does that reconnects.
    stubborn: bool = False


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One part of a batch: the first attempt that is prepared is taken."""

    attempts: tuple[AttemptPlan, ...]
    #: All attempts begin at once; else each when the one before has failed.
    speculates: bool = False


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One decision."""

    tasks: tuple[TaskPlan, ...]
    #: Seconds between the last part that is prepared and the decision.
    pause: float
    commits: bool
    #: The kproxies where the commit is repeated though it was reported as done.
    repeats: tuple[int, ...]
    #: With the commit all else of the id is aborted.
    sweeps: bool
    #: The owner's own part at a kproxy, if it writes one; it may be prepared, too.
    own: AttemptPlan | None = None
    prepares: bool = False


@dataclass(frozen=True, slots=True)
class DriverLife:
    """A driver's process, from ``initialize`` on."""

    gap: float
    instance: int
    dies_after: float | None = None


@dataclass(frozen=True, slots=True)
class MemberGroupPlan:
    """One driver and its workers; another one may have its transactional id, and the same batches."""

    number: int
    transactional_id: str
    timeout_ms: int
    lives: tuple[DriverLife, ...]
    batches: tuple[BatchPlan, ...]
    #: The next life commits what the one before had prepared (two-phase commit), or aborts it and does it again.
    keeps: bool
    request_timeout: float


@dataclass(frozen=True, slots=True)
class MemberGroupTaste:
    """The ranges that groups are drawn from; shares in [0, 1]."""

    #: Runs that have any.
    runs: float = 0.3
    member_groups: tuple[int, int] = (1, 2)
    twins: float = 0.3
    lives: tuple[int, ...] = _LIVES
    batches: tuple[int, int] = (1, 4)
    tasks: tuple[int, int] = (1, 3)
    dies: float = 0.6
    #: The last life may die, too.
    leaves: float = 0.25
    fails: float = 0.15
    speculates: float = 0.2
    commits: float = 0.85
    repeats: float = 0.4
    sweeps: float = 0.7
    own: float = 0.25
    keeps: float = 0.5
    pauses: tuple[float, ...] = _PAUSES
    timeouts_ms: tuple[int, ...] = (3_000, 8_000, 30_000)


def make_member_groups(
    rng: Random, taste: MemberGroupTaste, instances: int, places: int
) -> tuple[MemberGroupPlan, ...]:
    """Those of a run, which has so many kproxies, and so many partitions to write to."""
    if rng.random() >= taste.runs:
        return ()
    maker = _Maker(rng, taste, instances, places)
    member_groups: list[MemberGroupPlan] = []
    for number in range(rng.randint(*taste.member_groups)):
        twin = bool(member_groups) and rng.random() < taste.twins
        member_groups.append(maker.member_group(number, member_groups[-1] if twin else None))
    return tuple(member_groups)


def of_members_alone(member_group: MemberGroupPlan) -> MemberGroupPlan:
    """The same group where the owner can't write with its members."""
    return replace(
        member_group, batches=tuple(replace(batch, own=None, prepares=False) for batch in member_group.batches)
    )


class _Maker:
    def __init__(self, rng: Random, taste: MemberGroupTaste, instances: int, places: int) -> None:
        self._rng = rng
        self._taste = taste
        self._instances = instances
        self._places = places

    def member_group(self, number: int, twin: MemberGroupPlan | None) -> MemberGroupPlan:
        rng, taste = self._rng, self._taste
        return MemberGroupPlan(
            number=number,
            transactional_id=twin.transactional_id if twin else f"crew-{number}",
            timeout_ms=rng.choice(taste.timeouts_ms),
            lives=self._lives(),
            batches=twin.batches if twin else self._some(rng.randint(*taste.batches), self._batch),
            keeps=twin.keeps if twin else rng.random() < taste.keeps,
            request_timeout=rng.choice((2.0, 6.0)),
        )

    def _some(self, count: int, make: Callable[[], T]) -> tuple[T, ...]:
        return tuple(make() for _ in range(count))

    def _lives(self) -> tuple[DriverLife, ...]:
        lives = self._some(self._rng.choice(self._taste.lives), self._life)
        return lives if self._rng.random() < self._taste.leaves else (*lives[:-1], replace(lives[-1], dies_after=None))

    def _life(self) -> DriverLife:
        rng = self._rng
        dies = round(rng.uniform(0.0, 8.0), 3) if rng.random() < self._taste.dies else None
        return DriverLife(round(rng.uniform(0.0, 3.0), 3), self._instance(), dies)

    def _instance(self) -> int:
        return self._rng.randrange(self._instances)

    def _batch(self) -> BatchPlan:
        rng, taste = self._rng, self._taste
        return BatchPlan(
            tasks=self._some(rng.randint(*taste.tasks), self._task),
            pause=rng.choice(taste.pauses),
            commits=rng.random() < taste.commits,
            repeats=self._some(rng.randint(1, 2), self._instance) if rng.random() < taste.repeats else (),
            sweeps=rng.random() < taste.sweeps,
            own=self._attempt() if rng.random() < taste.own else None,
            prepares=rng.random() < 0.5,
        )

    def _task(self) -> TaskPlan:
        return TaskPlan(self._some(4, self._attempt), self._rng.random() < self._taste.speculates)

    def _attempt(self) -> AttemptPlan:
        rng = self._rng
        return AttemptPlan(
            instance=self._instance(),
            gap=rng.choice(_GAPS),
            writes=self._some(rng.choice((0, 1, 1, 2)), self._write),
            fails=rng.random() < self._taste.fails,
            gives_up=rng.random() < 0.5,
            stubborn=rng.random() < 0.3,
        )

    def _write(self) -> tuple[tuple[int, int], ...]:
        places = sorted(self._rng.sample(range(self._places), self._rng.randint(1, self._places)))
        return tuple((place, self._rng.choice((1, 1, 3))) for place in places)
