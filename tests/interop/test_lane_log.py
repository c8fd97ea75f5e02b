"""The lane log on real brokers: made as it has to be, and read by another process after kproxy has ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
)
from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.dedup.identity import Identity
from kproxy.dedup.instance_holder import is_holder_entry
from kproxy.dedup.lane_record import LaneRecord, decode_key, decode_value
from kproxy.net.lane_topic import TOPIC, partition_of
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.net.lane_harness import instance, lanes
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_TOPIC_RESOURCE = 2
_SETTINGS = {
    "cleanup.policy": "compact,delete",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "2",
    "retention.ms": "604800000",
    "segment.bytes": str(1 << 20),
    "segment.ms": "691200000",
    "unclean.leader.election.enable": "false",
}
#: Deletes and compacts whatever may be, at once.
_EAGER = {
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
}
_RETENTION_MS = 10_000


def _produce(kproxy: KproxyProcess, topic: str, client_id: str) -> None:
    with ClusterClient(kproxy.bootstrap, client_id=client_id) as client:
        batch = build_batch([Record(0, 1_700_000_000_000, None, b"x")])
        assert client.produce(topic, 0, batch).error_code == 0


def _written(client: ClusterClient, instance_id: str) -> list[LaneRecord]:
    """The last entry of each producer id of an instance."""
    data = client.read_all(TOPIC, partition_of(instance_id, 16))
    records = [row for row in iter_records(data, max_decompressed_bytes=1 << 20) if not is_holder_entry(row)]
    rows = {decode_key(row.key): row.value for row in records}
    return [
        decode_value(key, value) for key, value in rows.items() if key.instance_id == instance_id and value is not None
    ]


def _former(bootstrap: str, instance_id: str, identity: Identity) -> list[LaneRecord]:
    """What a new kproxy with this instance.id knows, after it has written an entry of its own."""

    async def read() -> list[LaneRecord]:
        async with instance(
            bootstrap, instance_id=instance_id, upstream_request_timeout_ms=20_000, producer_state_log_num_partitions=16
        ) as kproxy:
            found = kproxy.log.former(identity)
            for lane in found:
                await kproxy.log.record(lane._replace(epoch=lane.last_epoch + 2, last_epoch=lane.last_epoch + 33))
            return found

    return trio.run(read)


def test_lanes_survive_kproxy_and_are_known_to_the_next_of_its_name(kafka_cluster: RealKafka, tmp_path: Path) -> None:
    name = "lane-log"
    with ClusterClient(kafka_cluster.bootstrap) as client:
        client.create_topic(name, replication=3)
        # nothing is written when kproxy stops: the log is as kill -9 would leave it
        with KproxyProcess(kafka_cluster.bootstrap, tmp_path / "log", "--instance-id", name) as kproxy:
            for client_id in ("one", "two"):
                _produce(kproxy, name, client_id)
            kproxy.check()
        lanes = _written(client, name)
        assert [lane.identity.client_id for lane in lanes] == ["one", "two"]
        assert len({lane.producer_id for lane in lanes}) == 2
        for lane in lanes:
            assert _former(kafka_cluster.bootstrap, name, lane.identity) == [lane]
            [later] = _former(kafka_cluster.bootstrap, name, lane.identity)
            assert (later.producer_id, later.epoch) == (lane.producer_id, lane.last_epoch + 2)
        assert _former(kafka_cluster.bootstrap, "another", lanes[0].identity) == []


def test_the_topic_is_made_with_kproxys_settings(kafka_cluster: RealKafka, tmp_path: Path) -> None:
    with KproxyProcess(kafka_cluster.bootstrap, tmp_path / "log"), ClusterClient(kafka_cluster.bootstrap) as client:
        [topic] = client.metadata(TOPIC).topics
        assert len(topic.partitions) == 16
        assert {len(part.replica_nodes) for part in topic.partitions} == {3}
        resource = DescribeConfigsRequestDescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=list(_SETTINGS)
        )
        response = client.any_broker().call(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse)
        assert {row.name: row.value for row in response.results[0].configs} == _SETTINGS


def test_a_single_broker_gets_one_replica_and_a_warning(tmp_path: Path) -> None:
    with RealKafka() as kafka, ClusterClient(kafka.bootstrap) as client:
        with KproxyProcess(kafka.bootstrap, tmp_path / "log", "--instance-id", "alone") as kproxy:
            client.create_topic("lane-log")
            _produce(kproxy, "lane-log", "one")
            kproxy.check()
        assert "fewer brokers" in (tmp_path / "log").read_text()
        assert len(client.metadata(TOPIC).topics[0].partitions[0].replica_nodes) == 1
        assert len(_written(client, "alone")) == 1


async def _outlive_the_dead(bootstrap: str, seen: Callable[[], set[str]]) -> list[LaneRecord]:
    """What the next process of an instance knows that has lived for longer than an entry, beside a dead one.

    It uses one producer id all the time, and leases others now and then, which is what keeps entries of dead ones where
    compaction may merge segments too soon.
    """
    options: dict[str, Any] = {
        "upstream_request_timeout_ms": 20_000,
        "producer_state_log_num_partitions": 1,
        "producer_state_log_retention_ms": _RETENTION_MS,
    }
    one, other = Identity("", "one", ""), Identity("", "other", "")
    async with lanes(bootstrap, instance_id="dead", **options) as (_, leases):
        await leases.lease(one)
    assert await trio.to_thread.run_sync(seen) == {"dead"}
    began, gone = trio.current_time(), False
    async with lanes(bootstrap, instance_id="alive", **options) as (_, leases):
        held = await leases.lease(one)
        while not gone or trio.current_time() < began + 4 * _RETENTION_MS / 1000:
            leases.give_back(await leases.lease(other))
            await trio.sleep(0.2)
            found = await trio.to_thread.run_sync(seen)
            assert "alive" in found
            gone = "dead" not in found
            assert trio.current_time() < began + PATIENCE_S, "entries of an instance that never returned are there"
    async with instance(bootstrap, instance_id="alive", **options) as kproxy:
        assert [lane.producer_id for lane in kproxy.log.former(one)] == [held.producer_id]
        return kproxy.log.former(one)


def test_brokers_delete_what_a_dead_instance_left_and_keep_what_is_in_use() -> None:
    with RealKafka(config=_EAGER) as kafka, ClusterClient(kafka.bootstrap) as client:

        def seen() -> set[str]:
            rows = iter_records(client.read_all(TOPIC, 0), max_decompressed_bytes=1 << 20)
            return {decode_key(row.key).instance_id for row in rows if not is_holder_entry(row)}

        [former] = trio.run(_outlive_the_dead, kafka.bootstrap, seen)
        assert not former.returned
