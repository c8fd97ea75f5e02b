"""The transaction log on a real broker: followed while others append to it, delete from it, and recreate it."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import OwnTopic, Refused
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn.log_appender import AppendFenced, AppendRefused, LogAppender
from kproxy.net.txn.log_follower import LogFollower
from kproxy.net.txn.log_topic import transaction_plan
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.upstream_stats import UpstreamStats
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.net.txn.log_harness import PID, Sink, configured

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_PARTITIONS = 4
_PRODUCERS = 12
_APPENDS = 25


class Log(NamedTuple):
    """A follower that runs, and an appender."""

    follower: LogFollower
    appender: LogAppender
    sink: Sink


@asynccontextmanager
async def log_of(bootstrap: str, name: str) -> AsyncIterator[Log]:
    """One kproxy's part in a log of that name."""
    config = configured(bootstrap, upstream_request_timeout_ms=20_000, delivery_timeout_ms=30_000)
    cluster = Cluster(config, UpstreamStats(), ClusterMap(), SocketNetwork())
    sink = Sink()
    appender = LogAppender(cluster, config, name)
    async with trio.open_nursery() as nursery:
        follower = LogFollower(cluster, config, OwnTopic(cluster, replace(transaction_plan(config), name=name)), sink)
        try:
            with trio.fail_after(60):
                nursery.start_soon(follower.run)
                await follower.loaded()
            yield Log(follower, appender, sink)
        finally:
            nursery.cancel_scope.cancel()
            appender.close()
            cluster.close()


async def _append(log: Log, number: int, told: dict[int, dict[int, bytes]]) -> None:
    partition = number % _PARTITIONS
    for sequence in range(_APPENDS):
        value = b"%d/%d" % (number, sequence)
        offset = await log.appender.append(partition, PID + number, 0, sequence, [(b"k", value)])
        told.setdefault(partition, {})[offset] = value


async def _both(one: Log, other: Log, partition: int) -> None:
    """Both have read the partition to its end."""
    assert await one.follower.read_to_end(partition) == await other.follower.read_to_end(partition)


async def test_it_is_followed_while_others_append_and_delete(kafka: RealKafka) -> None:
    name = f"transaction-log-{uuid.uuid4().hex[:12]}"
    told: dict[int, dict[int, bytes]] = {}
    with trio.fail_after(120):
        async with log_of(kafka.bootstrap, name) as one, log_of(kafka.bootstrap, name) as other:
            async with trio.open_nursery() as nursery:
                for number in range(_PRODUCERS):
                    nursery.start_soon(_append, other, number, told)
                for share in range(1, 10):
                    for log in (one, other):
                        await log.follower.reached(0, share * _APPENDS // 5)
                    await other.appender.delete_records(0, share * _APPENDS // 5)
            for partition in range(_PARTITIONS):
                await _both(one, other, partition)
                for log in (one, other):
                    rows = log.sink.records[partition]
                    assert {row.offset: row.value for row in rows} == told[partition]
                    assert {row.epoch for row in rows} == {0}
                    assert all(row.timestamp_ms > 1_700_000_000_000 for row in rows)
            assert [start for _, start in one.sink.restarts] == [0] * _PARTITIONS
            async with log_of(kafka.bootstrap, name) as later:
                start = 9 * _APPENDS // 5
                assert dict(later.sink.restarts) == {0: start, 1: 0, 2: 0, 3: 0}
                assert {row.offset: row.value for row in later.sink.records[0]} == {
                    offset: value for offset, value in told[0].items() if offset >= start
                }


async def test_fences_repetitions_and_refusals(kafka: RealKafka) -> None:
    name = f"transaction-log-{uuid.uuid4().hex[:12]}"
    with trio.fail_after(120):
        async with log_of(kafka.bootstrap, name) as log:
            assert await log.appender.append(1, PID, 0, 0, [(b"k", b"a"), (b"k", None)]) == 0
            assert await log.appender.append(1, PID, 0, 0, [(b"k", b"a"), (b"k", None)]) == 0
            assert await log.appender.append(1, PID, 64, 0, [(b"k", b"b")]) == 2
            with pytest.raises(AppendFenced):
                await log.appender.append(1, PID, 0, 2, [(b"k", b"c")])
            with pytest.raises(AppendRefused) as caught:
                await log.appender.append(1, PID, 64, 5, [(b"k", b"d")])
            assert caught.value.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            with pytest.raises(AppendRefused) as caught:
                await log.appender.append_unfenced(1, [(b"k", bytes(2 << 20))])
            assert caught.value.error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert await log.appender.append_unfenced(1, [(b"k", b"snapshot")]) == 3
            assert await log.follower.read_to_end(1) == 4
            assert log.sink.values(1) == [b"a", None, b"b", b"snapshot"]
            assert [row.producer_id for row in log.sink.records[1]] == [PID, PID, PID, -1]
            with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
                await log.appender.delete_records(1, 9)


async def test_a_topic_that_is_recreated_is_read_again_even_if_it_is_longer_than_the_former(kafka: RealKafka) -> None:
    name = f"transaction-log-{uuid.uuid4().hex[:12]}"
    with trio.fail_after(120), ClusterClient(kafka.bootstrap) as client:
        async with log_of(kafka.bootstrap, name) as log:
            await log.appender.append(0, PID, 0, 0, [(b"k", b"old")])
            await log.follower.reached(0, 1)
            client.delete_topic(name)
            async with log_of(kafka.bootstrap, name) as again:
                for sequence in range(3):
                    await again.appender.append(0, PID, 0, sequence, [(b"k", b"new")])
                while log.sink.values() != [b"new"] * 3:
                    await log.follower.changed(log.follower.version)


async def test_leaders_die_and_move(kafka_cluster: RealKafka) -> None:
    name = f"transaction-log-{uuid.uuid4().hex[:12]}"
    told: dict[int, dict[int, bytes]] = {}
    with trio.fail_after(240):
        async with log_of(kafka_cluster.bootstrap, name) as one, log_of(kafka_cluster.bootstrap, name) as other:
            await _append(other, 0, told)
            with ClusterClient(kafka_cluster.bootstrap) as client:  # an index of the cluster's, not a node id
                leader = client.metadata(name).topics[0].partitions[0].leader_id - 1
            async with trio.open_nursery() as nursery:
                for number in range(1, _PRODUCERS):
                    nursery.start_soon(_append, other, number, told)
                await trio.to_thread.run_sync(kafka_cluster.kill, leader)
            for partition in range(_PARTITIONS):
                await _both(one, other, partition)
            await trio.to_thread.run_sync(kafka_cluster.restart, leader)
            for partition in range(_PARTITIONS):
                await other.appender.append(partition, PID + 99, 0, 0, [(b"k", b"last")])
                await _both(one, other, partition)
                for log in (one, other):
                    rows = log.sink.records[partition]
                    assert rows[-1].value == b"last"
                    assert {row.offset: row.value for row in rows[:-1]} == told[partition]
            assert len(one.sink.restarts) == _PARTITIONS
