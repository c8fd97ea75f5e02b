"""Instances of kproxy's coordinator on one fake cluster, and clients that ask them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import trio

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.batch import Record, build_batch, iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.succession import Succession
from kproxy.net.txn.service import Transactions
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.proxy.traces import Traces
from kproxy.testing.fake_broker import ClusterConfig, FakeServer, open_fake_cluster
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer, is_transactional_producer_id
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.views import Views
from tests.net.txn.log_harness import PATIENCE, configured

T = TypeVar("T")

TIMEOUT_MS = 60_000


@dataclass
class Instance:
    """One kproxy, as far as transactions go."""

    name: str
    transactions: Transactions
    stats: Stats
    scope: trio.CancelScope
    gone: trio.Event

    async def kill(self) -> None:
        """Ends it in the middle of whatever it does."""
        self.scope.cancel()
        await self.gone.wait()


@dataclass
class Client:
    """A transactional producer (TV1: its epoch stays; TV2: it rises with each end)."""

    transactional_id: str
    bumps: bool = False
    connection: int = 1
    producer: Producer = NOBODY
    _next: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def request(self) -> TxnRequest:
        return TxnRequest(self.transactional_id, self.producer, self.connection, "test")

    async def init(self, at: Instance, timeout_ms: int = TIMEOUT_MS, *, resume: bool = False) -> Producer:
        with trio.fail_after(PATIENCE):
            had = self.producer if resume else None
            coordinator = at.transactions.coordinator
            self.producer = await coordinator.init_producer_id(self.transactional_id, timeout_ms, had, "test")
        self._next.clear()
        return self.producer

    async def add(self, at: Instance, *places: tuple[str, int]) -> Any:
        with trio.fail_after(PATIENCE):
            return await at.transactions.coordinator.add_partitions(self.request, places)

    def batch(self, value: str, place: tuple[str, int]) -> ClientBatch:
        """The next batch of this client for a partition; its sequence is used up."""
        sequence = self._next.get(place, 0)
        self._next[place] = sequence + 1
        data = build_batch(
            [Record(0, 0, None, value.encode())],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return ClientBatch(*place, memoryview(data), 1, sequence)

    async def send(self, at: Instance, batches: Sequence[ClientBatch]) -> Sequence[Written]:
        with trio.fail_after(PATIENCE):
            coordinator = at.transactions.coordinator
            return await coordinator.produce(self.request, batches, implicit=self.bumps, accepted=lambda: None)

    async def write(self, at: Instance, value: str, *places: tuple[str, int]) -> None:
        """One record with this value to each partition, acknowledged."""
        if not self.bumps:
            assert not await self.add(at, *places)
        rows = await self.send(at, [self.batch(value, place) for place in places])
        assert [row.error_code for row in rows] == [0] * len(places)

    async def end(self, at: Instance, *, committed: bool = True) -> Producer:
        with trio.fail_after(PATIENCE):
            coordinator = at.transactions.coordinator
            told = await coordinator.end(self.request, committed=committed, bumps=self.bumps)
        if told != self.producer:
            self._next.clear()
        self.producer = told
        return told

    async def abort_and_commit(self, at: Instance, value: str, *places: tuple[str, int]) -> None:
        """Aborts what is open, as after TRANSACTION_ABORTABLE, and continues with a transaction that it commits."""
        await self.end(at, committed=False)
        await self.write(at, value, *places)
        await self.end(at)

    async def add_offsets(self, at: Instance, group: str) -> None:
        """AddOffsetsToTxn."""
        with trio.fail_after(PATIENCE):
            await at.transactions.coordinator.add_offsets(self.request, group)

    async def commit_offsets(
        self, at: Instance, group: str, offset: int, generation: int = -1, member: str = "", partition: int = 0
    ) -> None:
        """TxnOffsetCommit alone."""
        rows = [TransactionOffsetsTopic("in", [TransactionOffsetsPartition(partition, offset)])]
        with trio.fail_after(PATIENCE):
            await at.transactions.coordinator.commit_offsets(
                self.request,
                TransactionOffsets(group_id=group, generation_id=generation, member_id=member, topics=rows),
                implicit=self.bumps,
            )

    async def offsets(self, at: Instance, group: str, offset: int, generation: int = -1, member: str = "") -> None:
        """``sendOffsetsToTransaction``: all of it."""
        if not self.bumps:
            await self.add_offsets(at, group)
        await self.commit_offsets(at, group, offset, generation, member)


async def arrives(ask: Callable[[], Awaitable[T]]) -> T:
    """What a client is answered that retries while another instance coordinates its id."""
    while True:
        try:
            return await ask()
        except TxnError as error:
            if error.error_code is not ErrorCode.NOT_COORDINATOR:
                raise
            await trio.sleep(0.1)


@dataclass
class Cast:
    """A fake cluster and the instances on it."""

    fake: FakeServer
    nursery: trio.Nursery
    options: dict[str, Any]

    async def instance(
        self, name: str = "a", *, succession: Succession | None = None, traces: Traces | None = None, **options: Any
    ) -> Instance:
        """Starts an instance; returns when it has read the log."""
        with trio.fail_after(PATIENCE):
            run = partial(self._run, name, {**self.options, **options}, succession, traces)
            started: Instance = await self.nursery.start(run)
            return started

    async def _run(
        self,
        name: str,
        options: dict[str, Any],
        succession: Succession | None,
        traces: Traces | None,
        *,
        task_status: trio.TaskStatus[Instance],
    ) -> None:
        config = configured(self.fake.bootstrap, instance_id=name, **options)
        stats, gone = Stats(), trio.Event()
        cluster = Cluster(config, stats.upstream, ClusterMap(), SocketNetwork())
        try:
            async with trio.open_nursery() as nursery:
                transactions = Transactions(cluster, config, stats, nursery, succession, traces)
                await nursery.start(transactions.run)
                task_status.started(Instance(name, transactions, stats, nursery.cancel_scope, gone))
        finally:
            cluster.close()
            gone.set()

    def batches(self, topic: str, partition: int) -> list[bytes]:
        """All that a log holds."""
        data = self.fake.cluster.topics[topic].partitions[partition].log.read(0, 1 << 30, whole_first_batch=True)
        found: list[bytes] = []
        while data:
            size = read_header(data).size
            found.append(data[:size])
            data = data[size:]
        return found

    def visible(self, views: Views, topic: str = "t", partition: int = 0) -> list[str]:
        """The values that a view shows, up to the first that is undecided."""
        shown: list[str] = []
        for data in self.batches(topic, partition):
            header = read_header(data)
            producer = (header.producer_id, header.producer_epoch)
            if header.is_control:
                continue
            if is_transactional_producer_id(header.producer_id):
                verdict = views.verdict(*producer)
                if verdict is Verdict.UNDECIDED:
                    break
                if verdict is Verdict.ABORTED or views.is_other_copy(
                    *producer, topic, partition, header.base_sequence, header.base_offset
                ):
                    continue
            shown += [(row.value or b"").decode() for row in iter_records(data, max_decompressed_bytes=1 << 20)]
        return shown


@asynccontextmanager
async def stage(brokers: int = 1, *, brokers_have: ClusterConfig | None = None, **options: Any) -> AsyncIterator[Cast]:
    """A fake cluster with a topic ``t`` of four partitions."""
    async with open_fake_cluster(brokers, config=brokers_have) as fake, trio.open_nursery() as nursery:
        fake.cluster.create_topic("t", 4)
        yield Cast(fake, nursery, options)
        nursery.cancel_scope.cancel()
