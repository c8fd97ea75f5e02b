"""A transaction's writer on a fake cluster, and what the cluster's logs hold of the transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import trio

from kproxy.codec.batch import Record, build_batch, iter_records, read_header
from kproxy.config import Address, Config
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn.writer import TransactionWriter
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import FakeCluster, FakeServer, open_fake_cluster
from kproxy.testing.fake_broker.partition import Partition
from kproxy.txn.ids import TXN_BITS
from kproxy.txn.writes import Batch, PartitionWrites, TxnSend

PATIENCE = 30.0
PID, EPOCH = TXN_BITS | 7, 3


class Stored(NamedTuple):
    """A batch in a log."""

    offset: int
    sequence: int
    value: bytes


@dataclass
class Writing:
    """A writer and what it writes to."""

    fake: FakeServer
    stats: Stats
    connections: WriterConnections
    writer: TransactionWriter
    epoch: int = EPOCH

    @property
    def brokers(self) -> FakeCluster:
        """The state of the fake cluster."""
        return self.fake.cluster

    def partition(self, index: int = 0, topic: str = "t") -> Partition:
        """A partition of the fake cluster."""
        return self.brokers.topics[topic].partitions[index]

    def accept(self, *values: bytes, index: int = 0, topic: str = "t") -> TxnSend:
        """Hands the writer one batch."""
        (send,) = self.writer.accept([batch(*values, index=index, topic=topic)])
        return send

    async def settled(self, *sends: TxnSend) -> list[int]:
        """The error code of each; trio.TooSlowError if that takes long."""
        with trio.fail_after(PATIENCE):
            await self.writer.settled(sends)
        return [send.error_code for send in sends]

    async def write(self, *values: bytes, index: int = 0) -> None:
        """One batch of one record for each value, written."""
        sends = [self.accept(value, index=index) for value in values]
        assert await self.settled(*sends) == [0] * len(sends)

    def log(self, index: int = 0, topic: str = "t") -> list[Stored]:
        """All batches of the transaction that are in a partition's log."""
        log = self.partition(index, topic).log
        return stored(log.read(0, 1 << 30, whole_first_batch=True), self.epoch)

    def visible(self, index: int = 0, topic: str = "t") -> list[bytes]:
        """The values that a reader will see if the transaction is committed."""
        return seen(self.log(index, topic), self.writer.written()[topic, index])

    def replace(self) -> None:
        """Continues with the writer of the next transaction."""
        self.epoch += 1
        self.writer = TransactionWriter(self.connections, PID, self.epoch)


def stored(data: bytes, epoch: int) -> list[Stored]:
    """All batches of the transaction with this epoch among those of a log."""
    at, found = 0, []
    while at < len(data):
        header = read_header(data, at)
        whole = data[at : at + header.size]
        at += header.size
        if (header.producer_id, header.producer_epoch) != (PID, epoch):
            continue
        assert not header.is_transactional
        value = b"".join(record.value or b"" for record in iter_records(whole, max_decompressed_bytes=1 << 24))
        found.append(Stored(header.base_offset, header.base_sequence, value))
    return found


def seen(log: list[Stored], written: PartitionWrites) -> list[bytes]:
    """The values of a log that count."""
    copies = dict(written.copies)
    return [row.value for row in log if copies.get(row.sequence, row.offset) == row.offset]


def batch(*values: bytes, index: int = 0, topic: str = "t") -> Batch:
    """One batch, as a transactional producer sends it."""
    rows = [Record(offset, 1_700_000_000_000, None, value, ()) for offset, value in enumerate(values)]
    data = build_batch(rows, producer_id=7, producer_epoch=0, base_sequence=99, is_transactional=True)
    return topic, index, memoryview(data), len(values)


@asynccontextmanager
async def connections(bootstrap: str, **options: Any) -> AsyncIterator[tuple[Stats, WriterConnections]]:
    """The connections of a transactional id; nothing of them may be left at the end."""
    places = [place.rpartition(":") for place in bootstrap.split(",")]
    given: dict[str, Any] = {"retry_backoff_ms": 2, "retry_backoff_max_ms": 10, **options}
    config = Config(bootstrap_servers=tuple(Address(host, int(port)) for host, _, port in places), **given)
    stats = Stats()
    cluster = Cluster(config, stats.upstream, ClusterMap(), SocketNetwork())
    async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
        pool = WriterConnections(cluster, config, stats.produce, nursery, EndOfTurn(outer))
        try:
            yield stats, pool
            with trio.fail_after(PATIENCE):
                while len(nursery.child_tasks) > len(pool._clients):  # noqa: ASYNC110 - nobody announces it
                    await trio.sleep(0.005)
                pool.close()
                while nursery.child_tasks:  # noqa: ASYNC110
                    await trio.sleep(0.005)
        finally:
            outer.cancel_scope.cancel()
            pool.close()
            cluster.close()


@asynccontextmanager
async def writing(brokers: int = 1, partitions: int = 1, **options: Any) -> AsyncIterator[Writing]:
    """A writer on a fake cluster with the topic ``t``."""
    async with open_fake_cluster(brokers) as fake:
        fake.cluster.create_topic("t", partitions, brokers)
        async with connections(fake.bootstrap, **options) as (stats, pool):
            made = Writing(fake, stats, pool, TransactionWriter(pool, PID, EPOCH))
            yield made
            made.writer.abandon()
            assert stats.produce.sends_in_flight == 0
