"""A fleet of kproxies on virtual hosts: all start at once, are idle, decide, lose one of them, and are restarted."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio
from trio.testing import MockClock

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey
from kproxy.config import Address, Config
from kproxy.net.txn.log_topic import TOPIC as LOG
from kproxy.testing.fake_broker import Call, FakeServer, open_fake_cluster
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.verdict import Verdict
from verification.fleet_scale.meter import Load, Meter, MeteredStream
from verification.simulation.clock import VirtualClock
from verification.simulation.history import History
from verification.simulation.instance import PORT, Instance
from verification.simulation.invariants import read_logs
from verification.simulation.logs import watched_logs
from verification.simulation.network import Host, VirtualNetwork
from verification.simulation.plan import BROKERS, PARTITIONS, TOPIC
from verification.simulation.transactions.calls import LOST, Calls
from verification.simulation.virtual_io import VirtualIO

_EPOCH: Final = 1_700_000_000.0
_TIMEOUT_MS: Final = 10_000
#: Within this time after its time-out a transaction of a dead instance is aborted: 10 s of grace, 5 s of turns, 1 s
#: between two sweeps.
_ORPHAN_SECONDS: Final = 20.0
_DOWN_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.1
_PATIENCE: Final = 120.0
_PRODUCE: Final = 3
#: What the simulation makes shorter than it is by default.
_REAL: Final = (
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "upstream_connect_timeout_ms",
    "upstream_request_timeout_ms",
    "delivery_timeout_ms",
    "clients_request_timeout_ms",
    "buffer_memory",
)


@dataclass(slots=True)
class Findings:
    """What a run showed."""

    instances: int
    start: Load
    idle: Load
    #: Seconds from EndTxn to the view of each instance.
    visible: list[float]
    decisions: Load
    #: Of the time in which a transaction of a dead instance was aborted.
    orphan: Load
    restarts: Load
    acknowledged: int = 0
    #: Errors that clients received during the rolling restart, and values that are not there once.
    faults: list[str] = field(default_factory=list)


class Fleet:
    """The instances, and what they have been asked."""

    def __init__(self, count: int) -> None:
        """Nothing runs yet."""
        self.clock = VirtualClock(MockClock(autojump_threshold=0))
        self._count = count
        self._network = VirtualNetwork(1, self.clock, lambda: _EPOCH + trio.current_time())
        self._history = History()
        self._fake: FakeServer
        self._nursery: trio.Nursery
        self._meter: Meter
        self.instances: list[Instance] = []

    async def run(self, *, idle_s: float, decisions: int, clients: int) -> Findings:
        """All of it."""
        with watched_logs(self._history):
            return await self._run(idle_s, decisions, clients)

    async def _run(self, idle_s: float, decisions: int, clients: int) -> Findings:
        async with self._brokers():
            async with trio.open_nursery() as nursery:
                for instance in self.instances:
                    nursery.start_soon(self._nursery.start, instance.run)
            await self._until_loaded(self.instances)
            start = self._meter.take()
            await trio.sleep(idle_s)
            idle = self._meter.take()
            visible = [seconds for nth in range(decisions) for seconds in await self._decide(nth)]
            decided = self._meter.take()
            await self._lose_one()
            orphan = self._meter.take()
            writers = [_Writer(self, self.instances[nth * self._count // clients], nth) for nth in range(clients)]
            await self._restart_all(writers)
            restarts = self._meter.take()
            found = Findings(self._count, start, idle, visible, decided, orphan, restarts)
            self._judge(writers, found)
            self._nursery.cancel_scope.cancel()
        return found

    @asynccontextmanager
    async def _brokers(self) -> AsyncIterator[None]:
        real = Config(bootstrap_servers=(Address("-", 1),))
        options = {name: getattr(real, name) for name in _REAL}
        async with open_fake_cluster(
            BROKERS, clock=lambda: int((_EPOCH + trio.current_time()) * 1000), listen=False
        ) as self._fake:
            cluster = self._fake.cluster
            cluster.create_topic(TOPIC, PARTITIONS, BROKERS, {})
            partitions = real.transaction_state_log_num_partitions
            cluster.create_topic(LOG, partitions, BROKERS, {"message.timestamp.type": "LogAppendTime"})
            self._meter = Meter(cluster)
            for broker in cluster.brokers.values():
                take = partial(self._serve, broker.node_id)
                self._network.takers[broker.host, broker.port] = ("broker", take)
            for number in range(self._count):
                args = (self._network, self._fake.bootstrap, self._history, options)
                self.instances.append(Instance(f"kproxy-{number}", *args, decides=True))
            async with trio.open_nursery() as self._nursery:
                await self._nursery.start(_hold_polls, self._fake)
                yield

    def _serve(self, node: int, io: VirtualIO) -> None:
        self._fake.nursery.start_soon(self._fake.serve, MeteredStream(io, self._meter), node, io.peer_host)

    async def _until_loaded(self, instances: Sequence[Instance]) -> None:
        with trio.fail_after(_PATIENCE):
            for instance in instances:
                assert instance.transactions is not None
                await instance.transactions.log.opened.wait()

    # -- transactions

    async def _begin(self, instance: Instance, name: str) -> tuple[TxnRequest, Producer]:
        """One with a record; the client's identity, and the one under which the record is written."""
        assert instance.transactions is not None
        coordinator = instance.transactions.coordinator
        client = await coordinator.init_producer_id(name, _TIMEOUT_MS, None, name)
        request = TxnRequest(name, client, 1, name)
        data = build_batch([Record(0, 0, None, b"-")], producer_id=client.producer_id, producer_epoch=client.epoch)
        batch = ClientBatch(TOPIC, 0, memoryview(data), 1, 0)
        (written,) = await coordinator.produce(request, [batch], implicit=True, accepted=lambda: None)
        assert not written.error_code, written
        view = await instance.transactions.log.read_to_end(name)  # the announcement need not have been read
        assert view is not None
        assert view.ongoing is not None
        return request, view.ongoing.producer

    async def _decide(self, nth: int) -> list[float]:
        """A transaction is committed; after so many seconds each instance knows it."""
        home = self.instances[nth * self._count // 7 % self._count]
        request, part = await self._begin(home, f"decided-{nth}")
        took: list[float] = []
        async with trio.open_nursery() as nursery:
            for instance in self.instances:
                nursery.start_soon(self._until_known, instance, part, Verdict.COMMITTED, took)
            assert home.transactions is not None
            await home.transactions.coordinator.end(request, committed=True, bumps=False)
        return took

    async def _until_known(self, instance: Instance, part: Producer, verdict: Verdict, took: list[float]) -> None:
        assert instance.transactions is not None
        began, follower = trio.current_time(), instance.transactions.follower
        with trio.fail_after(_PATIENCE):
            while True:
                seen = follower.version
                if instance.transactions.views.verdict(*part) is verdict:
                    break
                await follower.changed(seen)
        took.append(trio.current_time() - began)

    async def _lose_one(self) -> None:
        """An instance dies in a transaction; all others see it aborted."""
        lost, *others = self.instances[::-1]
        _, part = await self._begin(lost, "orphan")
        lost.kill()
        took: list[float] = []
        with trio.fail_after(_TIMEOUT_MS / 1000 + _ORPHAN_SECONDS):
            async with trio.open_nursery() as nursery:
                for instance in others:
                    nursery.start_soon(self._until_known, instance, part, Verdict.ABORTED, took)
        await self._nursery.start(lost.run)

    # -- a rolling restart

    async def _restart_all(self, writers: "Sequence[_Writer]") -> None:
        async with trio.open_nursery() as nursery:
            for writer in writers:
                nursery.start_soon(writer.run)
            async with trio.open_nursery() as restarts:
                for instance in self.instances:
                    restarts.start_soon(self._restart, instance)
                    await trio.sleep(_PAUSE_SECONDS)
            await self._until_loaded(self.instances)
            for writer in writers:
                writer.stops = True

    async def _restart(self, instance: Instance) -> None:
        """As ``kill -9``: without the time to end in that an orderly stop has."""
        instance.kill()
        await trio.sleep(_DOWN_SECONDS)
        await self._nursery.start(instance.run)

    def client(self, name: str, instance: Instance) -> Calls:
        """What a client asks an instance with."""
        return Calls(Host(self._network, name, "none"), name, 30.0, (instance.name, PORT))

    def _judge(self, writers: "Sequence[_Writer]", found: Findings) -> None:
        values = [content.value for log in read_logs(self._fake.cluster) for content in log.values()]
        for writer in writers:
            found.acknowledged += len(writer.written)
            found.faults += writer.faults
            found.faults += [
                f"{each!r} is there {n} times" for each in writer.written if (n := values.count(each)) != 1
            ]


class _Writer:
    """A legacy producer at its sidecar: a record each second, sent until it is acknowledged."""

    def __init__(self, fleet: Fleet, instance: Instance, number: int) -> None:
        self._calls = fleet.client(f"writer-{number}", instance)
        self._number = number
        self.stops = False
        self.written: list[bytes] = []
        self.faults: list[str] = []

    async def run(self) -> None:
        place = self._number % PARTITIONS
        while not self.stops:
            value = b"%d.%d" % (self._number, len(self.written))
            now_ms = int((_EPOCH + trio.current_time()) * 1000)
            batch = build_batch([Record(0, now_ms, None, value)])
            part = ProduceRequestPartitionProduceData(index=place, records=memoryview(batch))
            topic = ProduceRequestTopicProduceData(name=TOPIC, partition_data=[part])
            await self._deliver(place, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))
            self.written.append(value)
            await trio.sleep(1.0)
        self._calls.close()

    async def _deliver(self, place: int, request: ProduceRequest) -> None:
        with trio.fail_after(_PATIENCE):
            while True:
                try:
                    answer = await self._calls.ask(await self._calls.leader(place), request, _PRODUCE)
                except LOST:  # its sidecar is being restarted
                    self._calls.forget(place)
                    await trio.sleep(0.1)
                    continue
                assert isinstance(answer, ProduceResponse)
                (row,) = answer.responses[0].partition_responses
                if not row.error_code:
                    return
                self.faults.append(f"writer {self._number} receives error {row.error_code}")
                await trio.sleep(0.1)


async def _hold_polls(fake: FakeServer, *, task_status: trio.TaskStatus[None]) -> None:
    """Answers long polls of the log when their broker has something new: the fake broker wakes all at each change.

    As a broker does, whose polls wait in lists of their partitions.
    """
    cluster, changed = fake.cluster, {node: trio.Event() for node in fake.cluster.brokers}

    def has_news(call: Call) -> bool:
        parts = cluster.topics[LOG].partitions
        wanted = [row for topic in call.request.topics for row in topic.partitions]
        led = all(parts[row.partition].leader == call.broker_id for row in wanted)
        return not led or any(row.fetch_offset != parts[row.partition].high_watermark for row in wanted)

    async def hold(call: Call) -> None:
        polls = call.cluster.topics[LOG].topic_id
        if all(topic.topic == LOG or topic.topic_id == polls for topic in call.request.topics):
            with trio.move_on_after(call.request.max_wait_ms / 1000):
                while not has_news(call):
                    await changed[call.broker_id].wait()
            call.request.max_wait_ms = 0

    cluster.control(ApiKey.FETCH, hold)
    task_status.started()
    ends: dict[int, int] = {}
    while True:
        await cluster.wait_for_change()
        for node in changed:
            end = sum(part.high_watermark for part in cluster.topics[LOG].partitions if part.leader == node)
            if ends.get(node) != end:
                ends[node] = end
                changed[node].set()
                changed[node] = trio.Event()
