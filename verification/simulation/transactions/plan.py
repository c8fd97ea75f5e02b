"""The plan of one run with transactions: plain data, made from a seed."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Final

from kproxy.proxy.coordinator_rules import Home
from verification.simulation.plan import BUSY_SECONDS, FaultPlan, Plan
from verification.simulation.transactions.homes import (
    AT_KPROXY,
    FAULTS,
    HOMES,
    MEMBER_HOMES,
    HomePlan,
    draw_home,
    faults_of,
)
from verification.simulation.transactions.member_plans import (
    MemberGroupPlan,
    MemberGroupTaste,
    make_member_groups,
    of_members_alone,
)
from verification.simulation.transactions.route_plans import with_routes
from verification.simulation.transactions.routes import AT_ONE, Reach, Turn
from verification.simulation.transactions.ways import Way

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from verification.simulation.world import World

#: Partitions that transactions write to: one of each broker's.
PLACES: Final = 3
#: Ids that are not used for so long are given up in some runs; as a client's longest pause.
IDS_EXPIRE_MS: Final = 4_000


@dataclass(frozen=True, slots=True)
class Round:
    """Produce requests at one time: seconds before, and how many records for which partition."""

    gap: float
    batches: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """One transaction: what it writes, how long it waits then, and whether it asks to be committed."""

    gap: float
    rounds: tuple[Round, ...]
    pause: float
    commits: bool
    #: It moves the offset of a group that is its producer's own.
    moves: bool = False
    #: The turns that its client takes meanwhile.
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Life:
    """A producer's process, from InitProducerId on."""

    gap: float
    #: The kproxy that it bootstraps from.
    instance: int
    transactions: tuple[TransactionPlan, ...]
    #: Killed so many seconds after its start; None: it ends well.
    dies_after: float | None = None
    reach: Reach = AT_ONE


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """One transactional producer; others may have its transactional id."""

    number: int
    transactional_id: str
    #: Whether partitions join by being written, and the epoch rises with each end (KIP-890).
    second_version: bool
    timeout_ms: int
    lives: tuple[Life, ...]
    #: Without ``second_version``: after a batch that failed it asks for a new epoch, or uses the sequence again.
    renews: bool
    request_timeout: float
    #: Takes a batch whose response is lost for unsent: the next record gets its sequence (librdkafka, in an abort).
    reuses: bool = False
    #: Sends each record as a batch of its own, and several of a partition without waiting for a response.
    pipelines: bool = False
    way: Way = Way.KIP_98
    #: Of an application's consumer: the version of OffsetFetch.
    fetches_offsets: int = 5


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """A consumer of all partitions, from their beginnings on."""

    number: int
    instance: int
    version: int
    committed: bool = True
    #: At the brokers themselves; ``instance`` is nobody's then.
    direct: bool = False


@dataclass(frozen=True, slots=True)
class WorldPlan(Plan):
    """One run."""

    producers: tuple[ProducerPlan, ...] = ()
    readers: tuple[ReaderPlan, ...] = ()
    member_groups: tuple[MemberGroupPlan, ...] = ()
    place: HomePlan = AT_KPROXY

    @property
    def ids_expire(self) -> bool:
        """Whether ids that are not used are given up within the run."""
        return "transactional_id_timeout_ms" in self.options

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups whose offsets are moved."""
        return tuple(f"group-{producer.number}" for producer in self.producers)

    @property
    def sends(self) -> int:
        """The number of transactions that the producers and the drivers mean to make."""
        alone = sum(len(life.transactions) for producer in self.producers for life in producer.lives)
        return alone + sum(len(member_group.batches) for member_group in self.member_groups)


@dataclass(frozen=True, slots=True)
class Taste:
    """The ranges that runs are drawn from."""

    homes: tuple[Home, ...] = HOMES
    transaction_versions: tuple[int, ...] = (0, 1, 2, 2)
    faults: tuple[str, ...] = FAULTS
    fault_count: tuple[int, int] = (4, 12)
    instances: tuple[int, ...] = (2, 2, 3)
    producers: tuple[int, int] = (2, 4)
    lives: tuple[int, ...] = (1, 2, 3)
    transactions: tuple[int, int] = (2, 8)
    #: The share of producers that have the transactional id of the one before, in [0, 1].
    twins: float = 0.25
    #: The share of processes that are killed, in [0, 1].
    dies: float = 0.4
    commits: float = 0.7
    gaps: tuple[float, ...] = (0.0, 0.0, 0.05, 0.4)
    pauses: tuple[float, ...] = (0.0, 0.0, 0.0, 0.5, 6.0)
    timeouts_ms: tuple[int, ...] = (3_000, 8_000, 15_000)
    second_version: tuple[bool, ...] = (False, True)
    readers: tuple[int, int] = (1, 2)
    #: Of Fetch.
    versions: tuple[int, ...] = (4, 7, 11, 12)
    #: The shares of transactions that move a group, producers that pipeline, and runs in which ids expire, in [0, 1].
    moves: float = 0.4
    pipelines: float = 0.3
    expires: float = 0.15
    member_groups: MemberGroupTaste = field(default_factory=MemberGroupTaste)
    #: Of producers that know nothing of transactions.
    ways: tuple[Way, ...] = (Way.BY_HAND, Way.ON_OFFSET_COMMIT, Way.ON_OFFSET_COMMIT, Way.PER_REQUEST)
    #: The share of producers that go from one kproxy to another, in [0, 1], and the number of kproxies' outages.
    roams: float = 0.0
    outages: tuple[int, int] = (0, 0)


#: Clients go to other kproxies in the middle of transactions. They need time for it.
ROAMING: Final = Taste(
    homes=(Home.KPROXY,),
    fault_count=(0, 6),
    lives=(1, 1, 2),
    transactions=(2, 5),
    pauses=(0.0, 0.0, 0.5, 2.0, 6.0),
    timeouts_ms=(8_000, 15_000, 30_000),
    roams=0.85,
    outages=(0, 4),
)


def make_plan(seed: int, taste: Taste) -> WorldPlan:
    """The plan of a seed."""
    place = draw_home(seed, taste.homes, taste.transaction_versions)
    kinds = faults_of(place.home, taste.faults)
    rng = Random(f"transactions {seed}")
    instances = rng.choice(taste.instances)
    producers: list[ProducerPlan] = []
    for number in range(rng.randint(*taste.producers)):
        twin = bool(producers) and rng.random() < taste.twins
        name = producers[-1].transactional_id if twin else f"id-{number}"
        producers.append(_producer(rng, taste, number, name, instances))
    readers = [
        ReaderPlan(number, rng.randrange(instances), rng.choice(taste.versions))
        for number in range(rng.randint(*taste.readers))
    ]
    faults = [
        FaultPlan(round(rng.uniform(0.1, BUSY_SECONDS), 3), rng.choice(kinds), rng.random(), rng.random())
        for _ in range(rng.randint(*taste.fault_count) if kinds else 0)
    ]
    faults.sort(key=lambda fault: fault.time)
    plan = world_plan(seed, tuple(producers), tuple(readers), tuple(faults), instances, place=place)
    plan = _vary(plan, Random(f"more transactions {seed}"), taste)
    return with_routes(plan, taste) if taste.roams else plan


def world_plan(
    seed: int,
    producers: tuple[ProducerPlan, ...],
    readers: tuple[ReaderPlan, ...],
    faults: tuple[FaultPlan, ...] = (),
    instances: int = 2,
    script: "Callable[[World], Awaitable[None]] | None" = None,
    place: HomePlan = AT_KPROXY,
) -> WorldPlan:
    """A run in which all transactions have one home; where the brokers decide, there is a reader of theirs, too."""
    if place.is_native:
        readers = (*readers, ReaderPlan(len(readers), 0, readers[0].version, direct=True))
    return WorldPlan(
        seed,
        (),
        faults,
        instances,
        dict(place.options),
        script=script,
        producers=producers,
        readers=readers,
        place=place,
    )


def _vary(plan: WorldPlan, rng: Random, taste: Taste) -> WorldPlan:
    """Draws what groups move, who pipelines, whether ids expire, and groups of producers."""
    producers = tuple(
        replace(
            producer,
            pipelines=rng.random() < taste.pipelines,
            lives=tuple(replace(life, transactions=_moved(life, rng, taste)) for life in producer.lives),
        )
        for producer in plan.producers
    )
    expiry = {"transactional_id_timeout_ms": IDS_EXPIRE_MS} if rng.random() < taste.expires else {}
    member_groups = make_member_groups(Random(f"crews {plan.seed}"), taste.member_groups, plan.instances, PLACES)
    if plan.place.home not in MEMBER_HOMES:
        member_groups = ()
    if plan.place.home is Home.BROKER:
        member_groups = tuple(of_members_alone(member_group) for member_group in member_groups)
        ways = Random(f"ways {plan.seed}")
        producers = tuple(_legacy(producer, ways, taste) for producer in producers)
    return replace(plan, producers=producers, member_groups=member_groups, options={**plan.options, **expiry})


def _legacy(producer: ProducerPlan, rng: Random, taste: Taste) -> ProducerPlan:
    """One that knows nothing of transactions; of those only that are begun by hand several may have one id."""
    way, version = rng.choice(taste.ways), rng.choice((1, 5, 7))
    name = producer.transactional_id if way is Way.BY_HAND else f"{way.value} {producer.number}"
    lives = tuple(
        replace(life, transactions=tuple(replace(planned, moves=False) for planned in life.transactions))
        for life in producer.lives
    )
    return replace(producer, way=way, transactional_id=name, lives=lives, fetches_offsets=version)


def _moved(life: Life, rng: Random, taste: Taste) -> tuple[TransactionPlan, ...]:
    return tuple(replace(planned, moves=rng.random() < taste.moves) for planned in life.transactions)


def _producer(rng: Random, taste: Taste, number: int, name: str, instances: int) -> ProducerPlan:
    lives = [_life(rng, taste, instances, nth) for nth in range(rng.choice(taste.lives))]
    return ProducerPlan(
        number=number,
        transactional_id=name,
        second_version=rng.choice(taste.second_version),
        timeout_ms=rng.choice(taste.timeouts_ms),
        lives=tuple(lives),
        renews=rng.random() < 0.5,
        request_timeout=rng.choice((2.0, 6.0)),
    )


def _life(rng: Random, taste: Taste, instances: int, nth: int) -> Life:
    return Life(
        gap=round(rng.uniform(0.0, 3.0 if nth else 1.0), 3),
        instance=rng.randrange(instances),
        transactions=tuple(_transaction(rng, taste) for _ in range(rng.randint(*taste.transactions))),
        dies_after=round(rng.uniform(0.0, 6.0), 3) if rng.random() < taste.dies else None,
    )


def _transaction(rng: Random, taste: Taste) -> TransactionPlan:
    rounds = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        places = sorted(rng.sample(range(PLACES), rng.randint(1, PLACES)))
        rounds.append(Round(rng.choice(taste.gaps), tuple((place, rng.choice((1, 1, 3))) for place in places)))
    return TransactionPlan(
        rng.choice(taste.gaps), tuple(rounds), rng.choice(taste.pauses), rng.random() < taste.commits
    )
