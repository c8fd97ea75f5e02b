"""One run: the network, the fake cluster, kproxy and its clients, on one virtual clock, from one plan."""

import gc
import hashlib
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

import trio
from trio.testing import MockClock

from kproxy.dedup.lanes import SILENCE_S
from kproxy.net.brokers.backoff import CHANCE
from kproxy.testing.fake_broker import FakeCluster, FakeServer, open_fake_cluster
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.testing.fake_broker.producers import ProducerStates
from verification.simulation import invariants
from verification.simulation.balancer import Balancer
from verification.simulation.broker_watch import watch_brokers
from verification.simulation.clients import Client
from verification.simulation.clock import VirtualClock
from verification.simulation.faults import BROKER_LEG, strike
from verification.simulation.history import History, State
from verification.simulation.instance import PORT, Instance
from verification.simulation.logs import watched_logs
from verification.simulation.network import Host, VirtualNetwork
from verification.simulation.plan import (
    BROKERS,
    BUSY_SECONDS,
    LOG_APPEND_TIME,
    PARTITIONS,
    TOPIC,
    FaultPlan,
    Plan,
    Relay,
    instance_name,
)
from verification.simulation.streams import BrokerStream
from verification.simulation.tastes import Taste, make_plan
from verification.simulation.virtual_io import VirtualIO
from verification.simulation.wrap import sequences_from, write_much

_EPOCH: Final = 1_700_000_000.0
#: After the last fault: clients have so long to finish, kproxy so long to come to rest. What is lost on the way to a
#: client that has gone is sent again after two minutes at most, and answered by a reset.
_PATIENCE: Final = 200.0
#: The patience where a client has each of its requests refused, since the partition never exists.
_PIONEERS_PATIENCE: Final = 1000.0
_REST: Final = 130.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run."""

    plan: Plan
    #: The invariant that broke, and how; None if none did.
    broken: tuple[str, str] | None
    trace: tuple[str, ...]
    acknowledged: int
    #: The number of times that each thing was seen that only certain faults bring about.
    seen: dict[str, int]

    @property
    def digest(self) -> str:
        """The same for the same run."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


class World:
    """Everything in one run."""

    brokers: FakeCluster
    balancer: Balancer

    def __init__(self, plan: Plan) -> None:
        """Nothing runs yet."""
        self.plan = plan
        self.history = History(
            single=plan.options.get("clients_in_flight") == 1,
            strict=plan.strict,
            untimed=plan.topic == LOG_APPEND_TIME,
            declared=plan.options.get("clean_close_window_ms", 0) > 0,
        )
        for client in plan.clients:
            name = client.client_id, client.host
            self.history.depths[name] = max(client.depth, self.history.depths.get(name, 0))
        self.clients: list[Client] = []
        self.instances: list[Instance] = []
        self.network = VirtualNetwork(plan.seed, VirtualClock(MockClock(autojump_threshold=0)), self.wall, plan.weather)
        self._wall = _EPOCH
        self._fake: FakeServer
        self._nursery: trio.Nursery

    def wall(self) -> float:
        """The time of day, in seconds since the epoch."""
        return self._wall + trio.current_time()

    def _now(self) -> int:
        return int(self.wall() * 1000)

    # -- what faults do

    def jump(self, seconds: float) -> None:
        """The time of day jumps; processes that run do not see it."""
        self._wall += seconds

    async def crash(self, index: int, pause: float) -> None:
        """Kills a kproxy, and starts it again after a pause (seconds)."""
        instance = self.instances[index]
        if not instance.up:
            return
        instance.kill()
        self.history.crashed(index, trio.current_time())
        await trio.sleep(pause)
        self._nursery.start_soon(self._instance, instance)

    async def bounce(self, node: int, pause: float) -> None:
        """Stops a broker, and starts it again after a pause (seconds)."""
        if self.brokers.brokers[node].alive:
            await self._fake.stop_broker(node)
            await trio.sleep(pause)
            await self._fake.start_broker(node)

    async def repair(self, node: int) -> None:
        """Gives a broker its disk back; one that is down comes back with it."""
        if self.brokers.brokers[node].alive:
            self.brokers.disk_repaired(node)
        else:
            self.brokers.brokers[node].failed = False

    def expire_producers(self, partition: int) -> None:
        """A partition forgets its producers, as it does when they have been silent for a day (here ``SILENCE_S``).

        No batch is in flight then, no client is about to send one again, and no kproxy has just been killed.
        """
        if TOPIC in self.brokers.topics and self._is_silent():
            log = self.brokers.topics[TOPIC].partitions[partition].log
            log.producers = ProducerStates(check_ms=self.plan.expiry_check_ms)

    def _is_silent(self) -> bool:
        if trio.current_time() - self.history.last_produce < SILENCE_S or any(c.waits for c in self.clients):
            return False
        if any(
            i.stats.produce.sends_in_flight or i.stats.produce.oldest_unacknowledged or not i.up for i in self.instances
        ):
            return False
        arriving = (link.up for link in self.network.links if not link.far.closed)
        return not any(pipe.on_way and not pipe.reset for pipe in arriving)  # of clients that gave up, too

    def grow(self) -> None:
        """The topic gets more partitions, once."""
        topic = self.brokers.topics.get(TOPIC)
        able = self.brokers.controller_alive and any(broker.serves for broker in self.brokers.brokers.values())
        if topic is not None and len(topic.partitions) == PARTITIONS and able:
            self.brokers.add_partitions(topic, BROKERS, BROKERS)
            self._lengthen_logs()
            self.brokers.notify()

    async def remake_topic(self, pause: float) -> None:
        """The topic is deleted, and made again after a pause (seconds)."""
        if TOPIC in self.brokers.topics:
            self.history.deleted.append(invariants.read_logs(self.brokers))
            self.brokers.delete_topic(TOPIC)
            await trio.sleep(pause)
            self._make_topic()

    def _make_topic(self) -> None:
        self.brokers.create_topic(TOPIC, PARTITIONS, BROKERS, dict(self.plan.topic))
        self._lengthen_logs()

    def _lengthen_logs(self) -> None:
        """Lets empty logs be as long as they are when sequence numbers wrap, if they do in this run."""
        topic = self.brokers.topics.get(TOPIC)
        if topic is not None and self.plan.first_sequence:
            for partition in topic.partitions:
                write_much(partition.log)

    def compact(self, partition: int) -> None:
        """Compacts all of a partition, as if a new segment had just begun; what was in it is still known."""
        self.history.compacted.setdefault(partition, {}).update(invariants.read_logs(self.brokers)[partition])
        self.brokers.compact(TOPIC, partition, self.brokers.topics[TOPIC].partitions[partition].log.end_offset)

    # -- the run

    async def run(self) -> Outcome:
        """Runs from the first connection to the last look at the logs."""
        broken: tuple[str, str] | None = None
        async with open_fake_cluster(BROKERS, clock=self._now, config=self._config(), listen=False) as fake:
            self._fake, self.brokers = fake, fake.cluster
            self._make_topic()
            for broker in self.brokers.brokers.values():
                take = partial(self._serve, broker.node_id)
                self.network.takers[broker.host, broker.port] = (BROKER_LEG, take)
            watch_brokers(self.brokers, self.history)
            async with trio.open_nursery() as self._nursery:
                await self._start()
                await self._faults_and_clients()
                await self._rest()
                for instance in self.instances:
                    instance.kill()
                self._nursery.cancel_scope.cancel()
            broken = self._judge()
        return Outcome(self.plan, broken, tuple(self.history.trace), self.history.acknowledged, self._seen())

    def _config(self) -> ClusterConfig:
        """The brokers' configuration."""
        return ClusterConfig(
            auto_create_topics=False, producer_id_expiration_check_interval_ms=self.plan.expiry_check_ms
        )

    def _judge(self) -> tuple[str, str] | None:
        """The gravest invariant that broke, and how."""
        self.history.outlived |= invariants.read_outlived(self.brokers)
        self.history.aged_out = invariants.read_aged_out(self.brokers)
        self.history.buried = invariants.read_buried(self.brokers)
        self.history.retold |= invariants.read_retold(self.brokers, self.history)
        found = invariants.broken(self.history, invariants.read_logs(self.brokers))
        altered = invariants.altered(self.brokers, self.history)
        return next(chain(found, altered, self._reported_losses()), None)

    def _reported_losses(self) -> Iterator[tuple[str, str]]:
        """Losses that were reported, though no log was cut: only a topic that is made again loses records here."""
        for instance in self.instances:
            lost = sum(stats.kept.lost_records for stats in instance.all_stats)
            if lost and not self.history.deleted:
                yield invariants.NOT_LOST, f"{instance.name} reported {lost} records"

    def _serve(self, node: int, io: VirtualIO) -> None:
        if not self.brokers.brokers[node].alive:
            raise ConnectionRefusedError(f"broker {node} is down")
        self._fake.nursery.start_soon(self._fake.serve, BrokerStream(io), node, io.peer_host)

    async def _instance(
        self, instance: Instance, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            await instance.run(task_status=task_status)
        except* Exception as group:  # whatever it is, it is the finding
            self.history.breaks(invariants.FAILED, repr(group.exceptions))
            instance.kill()

    async def _start(self, *, decides: bool = False) -> None:
        for number in range(self.plan.instances):
            name = instance_name(number)
            options = self.plan.options
            instance = Instance(name, self.network, self._fake.bootstrap, self.history, options, decides=decides)
            self.instances.append(instance)
            await self._nursery.start(self._instance, instance)
        self.balancer = Balancer(self.network, self._nursery)
        for plan in self.plan.clients:
            place = (instance_name(plan.instance), PORT)
            reach = None if plan.relay is Relay.NONE else partial(self.balancer.connect, plan.relay)
            host = Host(self.network, plan.host, "none", reach)
            self.clients.append(Client(plan, host, place, self.history, self.plan.seed))

    async def _faults_and_clients(self) -> None:
        patience = _PIONEERS_PATIENCE if any(client.is_pioneer for client in self.plan.clients) else _PATIENCE
        with trio.move_on_after(BUSY_SECONDS + patience) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_memory)
                async with trio.open_nursery() as busy:
                    for fault in self.plan.faults:
                        busy.start_soon(self._strike, fault)
                    if self.plan.script is not None:
                        busy.start_soon(self.plan.script, self)
                    for work in self._busy():
                        busy.start_soon(work)
                nursery.cancel_scope.cancel()
        if scope.cancelled_caught:
            self.history.breaks(invariants.ANSWERED, f"clients are not done {patience:.0f} s after the last fault")

    def _busy(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """The work of the clients."""
        return [client.run for client in self.clients]

    async def _strike(self, fault: FaultPlan) -> None:
        await trio.sleep_until(fault.time)
        await strike(self, fault)

    async def _watch_memory(self) -> None:
        while True:
            for instance in self.instances:
                if instance.stats.clients.buffered_bytes > instance.buffer_memory:
                    self.history.breaks(
                        invariants.MEMORY, f"{instance.name} holds {instance.stats.clients.buffered_bytes}"
                    )
            await trio.sleep(0.25)

    async def _rest(self) -> None:
        with trio.move_on_after(_REST):
            while any(instance.leftovers for instance in self.instances):  # noqa: ASYNC110 - counters, unannounced
                await trio.sleep(0.5)
            return
        left = [f"{instance.name}: {instance.leftovers}" for instance in self.instances]
        self.history.breaks(invariants.LEAKED, "; ".join(left))

    def _seen(self) -> dict[str, int]:
        states = [sent.state for sent in self.history.records]
        counts = {state.value: states.count(state) for state in State}
        return {**counts, **invariants.judged(self.history)._asdict()}


@contextmanager
def _deterministic(seed: int) -> Iterator[None]:
    """Lets trio's scheduler order tasks by the seed, as it does under Hypothesis, and no garbage be collected.

    Pauses between attempts depend on the seed, too.

    What is collected is finalized, at a time that depends on what ran in the process before. Afterwards only what the
    run has left is looked through.
    """
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()
    core = trio._core._run
    allowed, state = core._ALLOW_DETERMINISTIC_SCHEDULING, core._r.getstate()
    core._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    core._r.seed(seed)
    pauses = CHANCE.getstate()
    CHANCE.seed(seed)
    try:
        yield
    finally:
        core._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]
        core._r.setstate(state)
        CHANCE.setstate(pauses)
        gc.collect()
        gc.unfreeze()
        if collects:
            gc.enable()


def run(plan: Plan, make: Callable[[Plan], World] = World) -> Outcome:
    """Runs a plan. The same plan gives the same outcome, trace and all; an exception is a broken invariant."""
    with _deterministic(plan.seed):
        return _run(plan, make)  # its world has to be unreachable when garbage is collected


def _run(plan: Plan, make: Callable[[Plan], World]) -> Outcome:
    world = make(plan)
    with watched_logs(world.history), sequences_from(plan.first_sequence):
        try:
            return trio.run(world.run, clock=world.network.clock.trio_clock)
        except Exception as error:
            how = "".join(traceback.format_exception(error))
            return Outcome(plan, (invariants.FAILED, how), tuple(world.history.trace), world.history.acknowledged, {})


def run_seed(taste: Taste, seed: int) -> Outcome:
    """Runs the plan of a seed. Processes that run seeds find it here; in ``__main__`` they could not."""
    return run(make_plan(seed, taste))
