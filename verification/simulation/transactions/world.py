"""One run with transactions: producers, readers, kproxies that decide, on the simulation's cluster and network."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from random import Random
from typing import Final, cast

import trio

from kproxy.codec.messages import Message
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.txn.last_stable import UNKNOWN
from verification.simulation import world as base
from verification.simulation.instance import PORT
from verification.simulation.network import Host
from verification.simulation.plan import FaultPlan
from verification.simulation.transactions import invariants, member_invariants
from verification.simulation.transactions.application import Application
from verification.simulation.transactions.broker_txn_watch import watch_coordinators
from verification.simulation.transactions.calls import Calls
from verification.simulation.transactions.control_calls import ControlClient, ControlPost
from verification.simulation.transactions.faults import FAULTS
from verification.simulation.transactions.group_watch import GroupWatch
from verification.simulation.transactions.history import TransactionHistory
from verification.simulation.transactions.homes import LONE_FAULTS, HomePlan
from verification.simulation.transactions.last_look import LastLook
from verification.simulation.transactions.legacy import ByHand, LegacyTools, PerRequest
from verification.simulation.transactions.member_groups import MemberGroups
from verification.simulation.transactions.plan import PLACES, Life, ProducerPlan, Taste, WorldPlan, make_plan
from verification.simulation.transactions.process import Process
from verification.simulation.transactions.producer import TransactionalProducer
from verification.simulation.transactions.reader import Reader
from verification.simulation.transactions.routes import Route
from verification.simulation.transactions.ways import Steps, Way

#: Readers ask so long for a response.
_READ_SECONDS: Final = 3.0
_FETCH: Final = 12
#: Readers that fetch by this version or later name their software.
_NAMED: Final = 5
_LEGACY: Final[Mapping[Way, Callable[[LegacyTools], Steps]]] = {
    Way.BY_HAND: ByHand,
    Way.ON_OFFSET_COMMIT: Application,
    Way.PER_REQUEST: PerRequest,
}
#: Seconds after a transaction's time-out in which its kproxy has aborted it, if the log takes writes.
_TIME_OUT_GRACE: Final = 10.0
#: Of those whose transactions are in no order with those of others.
_FIRST_NUMBER: Final = 1_000
#: In the place of a kproxy's number: the brokers themselves.
_AT_BROKERS: Final = -1
#: In ``Outcome.seen``.
CONTINUED: Final = "transactions that the next kproxy continued"


class TransactionWorld(base.World):
    """Everything in one run."""

    def __init__(self, plan: WorldPlan) -> None:
        """Nothing runs yet."""
        super().__init__(plan)
        self._plan = plan
        self.history = self.told = TransactionHistory()
        ids = [producer.transactional_id for producer in plan.producers]
        self.told.shared = {name for name in ids if ids.count(name) > 1}
        self.told.ids_expire, self.told.is_native = plan.ids_expire, plan.place.is_native
        self.told.continues = plan.place.continues(fault.kind for fault in plan.faults)
        #: The time, in seconds, that each of the next requests of these kinds that a producer sends is in flight.
        self.late: list[tuple[frozenset[int], float]] = []
        self.producers = [
            TransactionalProducer(one, partial(self._process_of, one), self.told, plan.seed) for one in plan.producers
        ]
        #: Requests by the control API. Set when the run begins.
        self.post: ControlPost
        #: Drivers and their workers. Set when the run begins.
        self.member_groups: MemberGroups
        self._readers: list[Reader] = []
        self._open: list[Calls] = []
        self._processes: dict[int, int] = {}
        self._numbers = count(_FIRST_NUMBER)
        self._watches = trio.CancelScope()
        #: Of the run. Set when all who write are done.
        self._last: LastLook

    @property
    def place(self) -> HomePlan:
        """The coordinator of transactions."""
        return self._plan.place

    def jump(self, seconds: float) -> None:
        """Lets time jump (``World.jump``); ids that expire may do so at once."""
        super().jump(seconds)
        self.told.jumped = True

    def _calls_of(self, plan: ProducerPlan, life: Life, nth: int) -> tuple[Calls, Route]:
        name = f"producer-{plan.number}.{nth}"
        host, place = Host(self.network, name, "none"), (f"kproxy-{life.instance}", PORT)
        route = Route(life.instance, life.reach, f"{self._plan.seed} route {plan.number}.{nth}")
        return Calls(host, name, plan.request_timeout, place, self._held_up, route=route), route

    def _process_of(self, plan: ProducerPlan, life: Life, nth: int, rng: Random) -> Steps:
        name = f"{plan.number}.{nth}"
        if plan.way is Way.KIP_98:
            calls, route = self._calls_of(plan, life, nth)
            return Process(plan, name, calls, self.told, rng, route)
        tools = LegacyTools(
            plan=plan,
            name=name,
            instance=life.instance,
            calls=partial(self._legacy_calls, name, life.instance),
            control=ControlClient(self.post, plan.request_timeout, rng, partial(self._say, name)),
            history=self.told,
            rng=rng,
            numbers=lambda: next(self._numbers),
        )
        return _LEGACY[plan.way](tools)

    def _legacy_calls(self, name: str, instance: int, client_id: str, timeout: float) -> Calls:
        host = Host(self.network, f"producer-{name}", "none")
        return Calls(host, client_id, timeout, (f"kproxy-{instance}", PORT), self._held_up, lingers=False)

    def _say(self, name: str, text: str) -> None:
        self.told.note(f"producer {name} {text}")

    def _held_up(self, message: Message) -> float:
        """The time that a producer's request is in flight: it may arrive when its connection is not in use any more."""
        found = next((row for row in self.late if message.API_KEY in row[0]), None)
        if found is None:
            return 0.0
        self.late.remove(found)
        self.told.note(f"{type(message).__name__} is held up for {found[1]:.3f} s")
        return found[1]

    def process(self, plan: ProducerPlan, instance: int) -> Process:
        """A process of a producer at a kproxy, for a script to lead; a producer's newest is the one that counts."""
        nth = self._processes[plan.number] = self._processes.get(plan.number, -1) + 1
        calls, route = self._calls_of(plan, Life(0.0, instance, ()), nth)
        self._open.append(calls)
        rng = Random(f"{self._plan.seed} process {plan.number}.{nth}")
        return Process(plan, f"{plan.number}.{nth}", calls, self.told, rng, route)

    def steps(self, plan: ProducerPlan, instance: int) -> Steps:
        """A process of a producer that knows nothing of transactions, for a script to lead."""
        nth = self._processes[plan.number] = self._processes.get(plan.number, -1) + 1
        rng = Random(f"{self._plan.seed} process {plan.number}.{nth}")
        return self._process_of(plan, Life(0.0, instance, ()), nth, rng)

    def _member_group_calls(self, client_id: str, instance: int, timeout: float) -> Calls:
        """Connections for a part of a batch; nobody closes what a worker leaves."""
        place = (f"kproxy-{instance}", PORT)
        return Calls(Host(self.network, client_id, "none"), client_id, timeout, place, self._held_up)

    def group_watch(self, name: str, instance: int) -> GroupWatch:
        """The watch that asks one kproxy for offsets of groups, or the brokers."""
        return GroupWatch(self._plain_calls(name, instance), self.told)

    @property
    def places(self) -> list[int]:
        """The places to read at: each kproxy and, where they decide, the brokers."""
        return [*range(self._plan.instances), *([_AT_BROKERS] if self._plan.place.is_native else [])]

    def _plain_calls(self, name: str, instance: int, software: str = "") -> Calls:
        place = (f"kproxy-{instance}", PORT)
        if instance == _AT_BROKERS:
            broker = self.brokers.brokers[1 + len(self._open) % len(self.brokers.brokers)]
            place = (broker.host, broker.port)
        calls = Calls(Host(self.network, name, "none"), name, _READ_SECONDS, place, software=software)
        self._open.append(calls)
        return calls

    def reader(
        self, name: str, instance: int, version: int = _FETCH, *, committed: bool = True, by_batch: bool = False
    ) -> Reader:
        """One at a kproxy or, at place -1, at the brokers; ``version`` of Fetch, ``by_batch``: a batch at a time."""
        # only a client that is known to skip control batches is taken past what is hidden at the end
        calls = self._plain_calls(name, instance, "" if version < _NAMED else "apache-kafka-java")
        shown, asks = partial(self._shown, name, committed), partial(self._asks_stable, name, instance)
        size = {"most_bytes": 1} if by_batch else {}
        return Reader(calls, version, committed=committed, shown=shown, asks=asks, **size)

    def _asks_stable(self, name: str, instance: int, place: int) -> Callable[[int], None]:
        """A Fetch is sent to an instance: what it tells then is not below anything that it has told before."""
        highest = self.told.stable_at.get((instance, place), 0)

        def heard(offset: int) -> None:
            if offset == UNKNOWN:
                return
            if offset < highest:
                what = f"from {highest} to {offset} in partition {place}, in a Fetch answer of {instance} for {name}"
                self.told.note(f"the last stable offset fell {what}")
                self.told.breaks(invariants.FALLS, what)
            self.told.hears_stable(instance, place, offset)

        return heard

    def _shown(self, name: str, committed: bool, place: int, offset: int, value: bytes) -> None:
        if not committed:
            return
        claimed = self.told.by_value.get(value)
        if claimed is None or not claimed.asked or claimed.told is False:
            self.told.note(f"{name} is shown {value.decode()} at {place}:{offset}")
            self.told.breaks(invariants.ABORTED, f"{value.decode()} is shown to {name} at {place}:{offset}")

    # -- the run

    def _config(self) -> ClusterConfig:
        return replace(super()._config(), transaction_version=self._plan.place.transaction_version)

    async def _start(self, *, decides: bool = True) -> None:
        await super()._start(decides=decides)
        seed = self._plan.seed
        self.post = ControlPost(self.instances, self._nursery, self.told, Random(f"{seed} control"))
        self.member_groups = MemberGroups(
            self._plan.member_groups, seed, self.post, self._member_group_calls, self.told
        )
        if self._plan.place.is_native:
            watch_coordinators(self.brokers, self.told, is_harmed=bool(self._plan.faults))
        for plan in self._plan.readers:
            place = _AT_BROKERS if plan.direct else plan.instance
            reader = self.reader(f"reader-{plan.number}", place, plan.version, committed=plan.committed)
            self._readers.append(reader)
        self._nursery.start_soon(self._watch)

    async def _watch(self) -> None:
        """Reads all the while, until everything is read."""
        with self._watches:
            async with trio.open_nursery() as nursery:
                for reader in self._readers:
                    for place in range(PLACES):
                        nursery.start_soon(reader.run, place)
                nursery.start_soon(self._watch_stable)
                nursery.start_soon(self._look_back)
                log_takes_writes = all(fault.kind in LONE_FAULTS for fault in self._plan.faults)
                if log_takes_writes and not self._plan.place.is_native and self._plan.script is None:
                    nursery.start_soon(self._watch_time_outs)
                if self._moves:
                    nursery.start_soon(self._watch_groups)

    @property
    def _moves(self) -> bool:
        """Whether a transaction of the plan moves a group."""
        producers = self._plan.producers
        reads = any(plan.way is Way.ON_OFFSET_COMMIT for plan in producers)
        return reads or any(one.moves for plan in producers for life in plan.lives for one in life.transactions)

    async def _watch_groups(self) -> None:
        """Asks for the offsets of groups, now here and now there."""
        rng = Random(f"{self._plan.seed} groups")
        watches = [self.group_watch(f"group-watch-{n}", n) for n in self.places]
        while True:
            await rng.choice(watches).position(rng.choice(self._plan.groups))
            await trio.sleep(rng.choice((0.3, 1.0, 2.5)))

    def _busy(self) -> Sequence[Callable[[], Awaitable[None]]]:
        drivers = [partial(driver.run, self._plan.instances) for driver in self.member_groups.drivers]
        return [*(producer.run for producer in self.producers), *drivers]

    async def _strike(self, fault: FaultPlan) -> None:
        if fault.kind not in FAULTS:
            await super()._strike(fault)
            return
        await trio.sleep_until(fault.time)
        self.history.note(f"fault {fault.kind} ({fault.where:.3f}, {fault.much:.3f})")
        await FAULTS[fault.kind](self, fault)

    async def _watch_stable(self) -> None:
        """Asks for last stable offsets, now here and now there, one question at a time."""
        rng = Random(f"{self._plan.seed} watch")
        watchers = {n: self.reader(f"watcher-{n}", n) for n in self.places}
        while True:
            place, instance = rng.randrange(PLACES), rng.choice(self.places)
            await self.look(watchers[instance], place, instance)
            await trio.sleep(rng.choice((0.05, 0.3, 0.8)))

    async def _watch_time_outs(self) -> None:
        """Looks for transactions that a kproxy leaves open after their time-out though it can write to its log."""
        while True:
            await trio.sleep(0.5)
            for instance in self.instances:
                if not instance.up or instance.transactions is None:
                    continue
                for owner in instance.transactions.coordinator.log:
                    if owner.is_overdue(trio.current_time() - _TIME_OUT_GRACE):
                        name = owner.keeper.transactional_id
                        how = f"{name} is open at {instance.name} {_TIME_OUT_GRACE:.0f} s after its time-out"
                        self.told.breaks(invariants.TIMEOUT, how)

    async def _look_back(self) -> None:
        """Fetches one batch, now here and now there, far before the end or near it: as readers do that lag or seek."""
        rng = Random(f"{self._plan.seed} look back")
        readers = [self.reader(f"lagging-{n}", n, by_batch=True) for n in self.places]
        while True:
            place, reader = rng.randrange(PLACES), rng.choice(readers)
            anywhere = rng.randrange(self.told.stable.get(place, 0) + 4)
            reader.positions[place] = rng.choice((0, reader.positions[place], anywhere))
            await reader.poll(place)
            await trio.sleep(rng.choice((0.01, 0.1, 0.4)))

    async def look(self, reader: Reader, place: int, instance: int) -> int:
        """The last stable offset of a partition; -1 if there is no response."""
        highest = self.told.stable.get(place, 0)  # others may ask at the same time
        told = await reader.end(place)
        if told is None:
            return -1
        if told != highest:
            self.told.note(f"the last stable offset of {place} is {told}")
        if told < highest:
            self.told.breaks(invariants.FALLS, f"from {highest} to {told} in partition {place}")
        self.told.hears_stable(instance, place, told)
        return told

    async def _rest(self) -> None:
        await self.member_groups.tidy(self._plan.instances)
        self._last = LastLook(self, self._readers)
        await self._last.take()
        self._watches.cancel()
        for calls in self._open:
            calls.close()
        await super()._rest()

    def _seen(self) -> dict[str, int]:
        all_stats = [stats for instance in self.instances for stats in instance.all_stats]
        return {**super()._seen(), CONTINUED: sum(stats.transactions.resumed for stats in all_stats)}

    def _judge(self) -> tuple[str, str] | None:
        history = self.told
        last = self._last
        if not last.is_whole:
            return history.broken
        first, *others = [reader.values for reader in last.committed]
        readers: list[invariants.Shown] = [*others, *(reader.values for reader in self._readers)]
        found = invariants.broken(history, first, last.everything.values, readers, last.positions)
        return next(chain(member_invariants.broken(self.member_groups.history, first), found), None)


def run(plan: WorldPlan) -> base.Outcome:
    """Runs a plan. The same plan gives the same outcome, trace and all."""
    return base.run(plan, lambda plan: TransactionWorld(cast(WorldPlan, plan)))


def run_seed(taste: Taste, seed: int) -> base.Outcome:
    """Runs the plan of a seed. Processes that run seeds find it here; in ``__main__`` they could not."""
    return run(make_plan(seed, taste))
