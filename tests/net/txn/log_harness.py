"""The transaction log on a fake cluster, without the rest of kproxy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from kproxy.codec.batch import Record, build_batch
from kproxy.config import Address, Config
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn.log_follower import LogFollower
from kproxy.net.txn.log_topic import TOPIC, transaction_topic
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import FakeCluster, FakeServer, open_fake_cluster

PATIENCE = 30.0
PID = 3 << 61 | 7


class Applied(NamedTuple):
    """A record that a sink was given."""

    offset: int
    timestamp_ms: int
    producer_id: int
    epoch: int
    key: bytes | None
    value: bytes | None


@dataclass
class Sink:
    """Keeps what it is given, and sees to it that nothing is passed over or comes twice."""

    records: dict[int, list[Applied]] = field(default_factory=dict)
    restarts: list[tuple[int, int]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)

    def restart(self, partition: int, start: int) -> None:
        self.restarts.append((partition, start))
        self.records[partition] = []
        self.ends[partition] = start

    def apply(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        epoch: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        rows = self.records[partition]
        assert offset >= self.ends[partition]
        assert not rows or offset > rows[-1].offset
        rows.append(Applied(offset, timestamp_ms, producer_id, epoch, key, value))

    def advanced(self, partition: int, end: int) -> None:
        rows = self.records[partition]
        assert end > self.ends[partition]
        assert not rows or end > rows[-1].offset
        self.ends[partition] = end

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [row.value for row in self.records.get(partition, [])]


def configured(bootstrap: str, **options: Any) -> Config:
    """A configuration for tests: short waits, four partitions."""
    places = [place.rpartition(":") for place in bootstrap.split(",")]
    given = {
        "retry_backoff_ms": 2,
        "retry_backoff_max_ms": 20,
        "upstream_request_timeout_ms": 2000,
        "delivery_timeout_ms": 5000,
        "transaction_state_log_num_partitions": 4,
        **options,
    }
    return Config(bootstrap_servers=tuple(Address(host, int(port)) for host, _, port in places), **given)


@dataclass
class Following:
    """A follower and what it has told."""

    config: Config
    stats: Stats
    cluster: Cluster
    sink: Sink
    follower: LogFollower
    nursery: trio.Nursery
    fake: FakeServer = field(default=None)  # type: ignore[assignment]  # set by ``followed``

    @property
    def brokers(self) -> FakeCluster:
        return self.fake.cluster

    def write(self, *values: bytes, partition: int = 0, epoch: int = 0, sequence: int = 0, pid: int = PID) -> int:
        """Append a batch without the follower's knowledge; its base offset."""
        return write(self.brokers, *values, partition=partition, epoch=epoch, sequence=sequence, pid=pid)

    async def at_end(self, partition: int = 0) -> int:
        with trio.fail_after(PATIENCE):
            return await self.follower.read_to_end(partition)


def write(
    fake: FakeCluster, *values: bytes, partition: int = 0, epoch: int = 0, sequence: int = 0, pid: int = PID
) -> int:
    """Append a batch of records that have these values; its base offset."""
    rows = [Record(n, 0, b"k", value) for n, value in enumerate(values)]
    data = build_batch(rows, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    part = fake.topics[TOPIC].partitions[partition]
    done = part.log.append(memoryview(data), part.leader_epoch, fake.clock())
    assert done.error == 0
    fake.notify()
    return done.base_offset


@asynccontextmanager
async def following(bootstrap: str, *, loaded: bool = True, **options: Any) -> AsyncIterator[Following]:
    """A follower of the cluster's transaction log, until the block ends."""
    config = configured(bootstrap, **options)
    stats = Stats()
    cluster = Cluster(config, stats.upstream, ClusterMap(), SocketNetwork())
    sink = Sink()
    async with trio.open_nursery() as nursery:
        follower = LogFollower(cluster, config, transaction_topic(cluster, config), sink)
        try:
            with trio.fail_after(PATIENCE):
                if loaded:
                    await nursery.start(follower.run)
                    await follower.loaded()
                else:
                    nursery.start_soon(follower.run)
            yield Following(config, stats, cluster, sink, follower, nursery)
        finally:
            nursery.cancel_scope.cancel()
            cluster.close()


@asynccontextmanager
async def followed(brokers: int = 1, **options: Any) -> AsyncIterator[Following]:
    """A follower of a new fake cluster's log."""
    async with open_fake_cluster(brokers) as fake, following(fake.bootstrap, **options) as found:
        found.fake = fake
        yield found
