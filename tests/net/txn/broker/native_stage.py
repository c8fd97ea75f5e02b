"""kproxies whose transactions the fake broker decides, and what the broker's logs hold."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.batch import Record, build_batch, iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.lane_log import LaneLog
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.succession import Succession
from kproxy.net.txn.broker.broker_side import BrokerSide
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import ClusterConfig, FakeCluster, FakeServer, open_fake_cluster
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.owner_policy import MANAGED
from kproxy.txn.requests import ClientBatch, TxnRequest
from tests.net.txn.log_harness import PATIENCE, configured

TIMEOUT_MS = 60_000
TOPIC = "t"
#: Ids that begin "own-" are not the broker's; nobody asks for one here.
RULES = (HomeRule("own-*", Home.KPROXY), HomeRule("*", Home.BROKER_FENCED))


class NoLog(list[Any]):
    """Owners of ids that kproxy's log decides: none."""

    leaving = False


@dataclass
class Kproxy:
    """One process, as far as the broker's transactions go."""

    coordinator: Coordinator
    side: BrokerSide
    cluster: Cluster
    stats: Stats
    jobs: Jobs
    scope: trio.CancelScope
    gone: trio.Event

    async def kill(self) -> None:
        """Ends it, whatever it does."""
        self.scope.cancel()
        await self.gone.wait()


@dataclass
class Client:
    """What one client writes, counted on over its transactions."""

    kproxy: Kproxy
    name: str = "id"
    producer: Producer = NOBODY
    _next: dict[int, int] = field(default_factory=dict)

    @property
    def request(self) -> TxnRequest:
        return TxnRequest(self.name, self.producer, 1, "client")

    async def init(self, timeout_ms: int = TIMEOUT_MS) -> None:
        with trio.fail_after(PATIENCE):
            self.producer = await self.kproxy.coordinator.init_producer_id(
                self.name, timeout_ms, None, "client", MANAGED
            )
        self._next.clear()

    async def send(self, value: str, index: int = 0, topic: str = TOPIC) -> ErrorCode:
        """One record; what becomes of it."""
        sequence = self._next.get(index, 0)
        self._next[index] = sequence + 1
        data = build_batch([Record(0, 0, None, value.encode())], producer_id=5, producer_epoch=0, base_sequence=0)
        batch = ClientBatch(topic, index, memoryview(data), 1, sequence)
        with trio.fail_after(PATIENCE):
            rows = await self.kproxy.coordinator.produce(self.request, [batch], implicit=True, accepted=lambda: None)
        return ErrorCode(rows[0].error_code)

    async def write(self, value: str, *indexes: int) -> None:
        for index in indexes or (0,):
            assert await self.send(value, index) is ErrorCode.NONE

    async def offsets(self, group: str, offset: int) -> None:
        rows = [TransactionOffsetsTopic(TOPIC, [TransactionOffsetsPartition(0, offset)])]
        offsets = TransactionOffsets(group_id=group, generation_id=-1, member_id="", topics=rows)
        with trio.fail_after(PATIENCE):
            await self.kproxy.coordinator.commit_offsets(self.request, offsets, implicit=True)

    async def end(self, *, committed: bool = True) -> None:
        with trio.fail_after(PATIENCE):
            await self.kproxy.coordinator.end(self.request, committed=committed, bumps=False)


@dataclass
class Stage:
    """A fake cluster with a topic of three partitions; its clock stands where a test puts it."""

    nursery: trio.Nursery
    options: dict[str, Any]
    now: int = 1_000_000
    server: FakeServer = field(init=False)

    async def kproxy(self, **options: Any) -> Kproxy:
        """A process; one that has an ``instance_id`` keeps what the next of that name needs."""
        started: Kproxy = await self.nursery.start(self._run, {**self.options, **options})
        return started

    async def client(self, **options: Any) -> Client:
        """Of a kproxy of its own, with the id."""
        client = Client(await self.kproxy(**options))
        await client.init()
        return client

    async def _run(self, options: dict[str, Any], *, task_status: trio.TaskStatus[Kproxy]) -> None:
        keeps = "instance_id" in options
        options = {"transactions_home": RULES, "crash_recovery_enable": keeps, **options}
        config, stats = configured(self.server.bootstrap, **options), Stats()
        cluster = Cluster(config, stats.upstream, ClusterMap(), SocketNetwork())
        lane_log, gone = LaneLog(cluster, config), trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                jobs = Jobs(nursery)
                connections = partial(WriterConnections, cluster, config, stats.produce, nursery, EndOfTurn(nursery))
                no_log: Any = NoLog()
                side = BrokerSide(cluster, config, stats.transactions)
                brokers = side.owners(connections, lane_log, Succession())
                nursery.start_soon(brokers.run)
                if keeps:
                    nursery.start_soon(lane_log.open, nursery)
                coordinator = Coordinator(no_log, brokers, config, jobs, cluster, stats.transactions)
                task_status.started(Kproxy(coordinator, side, cluster, stats, jobs, nursery.cancel_scope, gone))
        finally:
            lane_log.close()
            cluster.close()
            gone.set()

    def read(self, index: int = 0, *, committed: bool = True) -> list[str]:
        """The values that a reader of the broker has: of what is stable and not aborted, or of all."""
        return values(self.server.cluster, index, committed=committed)


def values(brokers: FakeCluster, index: int = 0, *, committed: bool = True) -> list[str]:
    """As ``Stage.read``, of any fake cluster."""
    log = brokers.topics[TOPIC].partitions[index].log
    end = log.transactions.stable_offset(log.end_offset) if committed else log.end_offset
    data, found = log.read(0, 1 << 30, whole_first_batch=True, end=end), []
    while data:
        header = read_header(data)
        if not (committed and log.transactions.is_aborted(header.producer_id, header.base_offset)):
            rows = iter_records(data[: header.size], max_decompressed_bytes=1 << 20)
            found += [(row.value or b"").decode() for row in rows]
        data = data[header.size :]
    return found


@asynccontextmanager
async def stage(level: int = 2, brokers: int = 1, **options: Any) -> AsyncIterator[Stage]:
    """``level``: of ``transaction.version``."""
    async with trio.open_nursery() as nursery:
        made = Stage(nursery, options)
        config = ClusterConfig(transaction_version=level)
        async with open_fake_cluster(brokers, clock=lambda: made.now, config=config) as made.server:
            made.server.cluster.create_topic(TOPIC, 3, brokers)
            yield made
            nursery.cancel_scope.cancel()
