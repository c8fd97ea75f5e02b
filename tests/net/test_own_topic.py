"""kproxy's own topics: found or created, and a warning for harmful settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import OwnTopic, Refused, TopicDeleted, check
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn.log_topic import TOPIC, transaction_topic
from kproxy.proxy.routing import ClusterMap, is_own_topic
from kproxy.proxy.upstream_stats import UpstreamStats
from kproxy.testing.fake_broker import Close, FakeServer, open_fake_cluster
from tests.net.txn.log_harness import configured

SETTINGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "2",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.bytes": "104857600",
    "unclean.leader.election.enable": "false",
}


@asynccontextmanager
async def topic(brokers: int = 1, **options: Any) -> AsyncIterator[tuple[FakeServer, Cluster, OwnTopic]]:
    """kproxy's view of the transaction topic on a fake cluster."""
    async with open_fake_cluster(brokers) as fake:
        config = configured(fake.bootstrap, **options)
        cluster = Cluster(config, UpstreamStats(), ClusterMap(), SocketNetwork())
        try:
            yield fake, cluster, transaction_topic(cluster, config)
        finally:
            cluster.close()


def test_clients_may_not_write_it() -> None:
    assert is_own_topic(TOPIC)


async def test_the_transaction_topic_is_made_as_configured() -> None:
    async with topic(3, transaction_state_log_num_partitions=50) as (fake, cluster, own):
        assert await own.prepare() == 50
        made = fake.cluster.topics[TOPIC]
        assert len(made.partitions) == 50
        assert all(len(partition.replicas) == 3 for partition in made.partitions)
        assert made.config == SETTINGS
        assert cluster.map.own_topic_ids == {made.topic_id}
        assert own.name == TOPIC


async def test_fewer_brokers_mean_fewer_replicas_and_a_warning() -> None:
    with structlog.testing.capture_logs() as lines:
        async with topic(2, transaction_state_log_segment_bytes=1 << 20) as (fake, _, own):
            await own.prepare()
            made = fake.cluster.topics[TOPIC]
            assert len(made.partitions[0].replicas) == 2
            assert made.config == {**SETTINGS, "segment.bytes": "1048576"}
    [warning] = [line for line in lines if line["log_level"] == "warning"]
    assert (warning["replicas"], warning["wanted"]) == (2, 3)
    assert "transaction.state.log.replication.factor" in warning["event"]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "CreateTime"},
        {"retention.ms": "604800000", "retention.bytes": "1000"},
        {"unclean.leader.election.enable": "true"},
    ],
)
async def test_one_that_is_there_is_used_as_it_is_and_harmful_settings_are_reported(wrong: dict[str, str]) -> None:
    with structlog.testing.capture_logs() as lines:
        async with topic() as (fake, _, own):
            fake.cluster.create_topic(TOPIC, 7, 1, {**SETTINGS, **wrong})
            assert await own.prepare() == 7
    warnings = {line["setting"]: (line["value"], line["wanted"]) for line in lines if line["log_level"] == "warning"}
    assert warnings == {name: (value, SETTINGS[name]) for name, value in wrong.items()}


async def test_who_may_not_look_at_the_settings_does_without() -> None:
    async with topic() as (fake, _, own):
        fake.cluster.create_topic(TOPIC, 7, 1)
        fake.cluster.control(ApiKey.DESCRIBE_CONFIGS, lambda _: Close())
        assert await own.prepare() == 7


def test_errors_are_told_apart() -> None:
    check("Fetch", "t", 0)
    with pytest.raises(TopicDeleted, match="Fetch: t is not there"):
        check("Fetch", "t", ErrorCode.UNKNOWN_TOPIC_ID)
    for code in (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE, 9999):
        with pytest.raises(OSError, match="failed"):
            check("Fetch", "t", code)
    with pytest.raises(Refused, match="Fetch: TOPIC_AUTHORIZATION_FAILED") as caught:
        check("Fetch", "t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert caught.value.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
