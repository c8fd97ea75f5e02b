"""The lane log on real brokers: made as it has to be, and read by another process after kproxy has ended."""

from pathlib import Path

import pytest
import trio

from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
)
from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import LaneRecord, decode_key, decode_value
from kproxy.net.lane_topic import TOPIC, partition_of
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.net.lane_harness import instance

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_TOPIC_RESOURCE = 2
_SETTINGS = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "segment.bytes": str(16 << 20),
}


def _produce(kproxy: KproxyProcess, topic: str, client_id: str) -> None:
    with ClusterClient(kproxy.bootstrap, client_id=client_id) as client:
        batch = build_batch([Record(0, 1_700_000_000_000, None, b"x")])
        assert client.produce(topic, 0, batch).error_code == 0


def _written(client: ClusterClient, instance_id: str) -> list[LaneRecord]:
    """The last entry of each producer id of an instance."""
    data = client.read_all(TOPIC, partition_of(instance_id, 16))
    rows = {decode_key(row.key): row.value for row in iter_records(data, max_decompressed_bytes=1 << 20)}
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
