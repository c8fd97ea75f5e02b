import pytest

from kproxy.doctor import topic_checks
from kproxy.doctor.findings import Level
from kproxy.testing.fake_broker import FakeServer
from tests.doctor.patients import examined, fake, levels, only

LANES = "__kproxy_producer_state"
LOG = "__kproxy_transaction_state"
LANES_CONFIG = {
    "cleanup.policy": "compact,delete",
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": "604800000",
    "min.insync.replicas": "2",
}
LOG_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "2",
}


FLEET = "__kproxy_fleet"
FLEET_CONFIG = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "1",
}
Settings = dict[str, str]


def make_own(
    cluster: FakeServer, replicas: int = 3, lanes: Settings | None = None, log: Settings | None = None
) -> None:
    cluster.cluster.create_topic(LANES, 4, replicas, LANES_CONFIG | (lanes or {}))
    cluster.cluster.create_topic(LOG, 4, replicas, LOG_CONFIG | (log or {}))


async def test_own_topics_as_they_should_be() -> None:
    async with fake() as cluster:
        make_own(cluster)
        found = await examined(cluster)
    assert [(one.level, one.found) for one in topic_checks.own_topics(found)] == [
        (Level.OK, f"{LANES} has 4 partitions, 3 replicas, min.insync.replicas 2"),
        (Level.OK, f"{LOG} has 4 partitions, 3 replicas, min.insync.replicas 2"),
    ]
    assert levels(topic_checks.replication, found) == [Level.OK]


async def test_own_topics_that_are_not_made_yet() -> None:
    async with fake(3) as cluster:
        assert levels(topic_checks.own_topics, await examined(cluster)) == [Level.OK, Level.OK]
    async with fake(1) as cluster:
        assert levels(topic_checks.own_topics, await examined(cluster)) == [Level.WARN, Level.WARN]
        assert levels(topic_checks.own_topics, await examined(cluster, crash_recovery_enable=False)) == [Level.WARN]


async def test_a_log_that_forgets() -> None:
    async with fake() as cluster:
        make_own(cluster, log={"retention.ms": "604800000"})
        found = await examined(cluster)
    _, log = topic_checks.own_topics(found)
    assert (log.level, log.advice) == (Level.FAIL, "set retention.ms=-1")


@pytest.mark.parametrize(
    ("changes", "level", "advice"),
    [
        ({}, Level.OK, ""),
        ({"cleanup.policy": "delete,compact"}, Level.OK, ""),
        ({"cleanup.policy": "compact"}, Level.FAIL, "set cleanup.policy=compact,delete"),
        ({"message.timestamp.type": "CreateTime"}, Level.FAIL, "set message.timestamp.type=LogAppendTime"),
        ({"retention.ms": "179999"}, Level.WARN, "set retention.ms to 3 times fleet.announce.interval.ms, 180000, or "),
        ({"retention.ms": "-1"}, Level.OK, ""),
    ],
)
async def test_a_topic_of_announcements_that_hides_instances_or_keeps_them(
    changes: Settings, level: Level, advice: str
) -> None:
    async with fake() as cluster:
        make_own(cluster)
        cluster.cluster.create_topic(FLEET, 8, 3, FLEET_CONFIG | changes)
        found = await examined(cluster, fleet_announce_interval_ms=60_000)
    finding = list(topic_checks.own_topics(found))[2]
    assert (finding.level, finding.advice[: len(advice)]) == (level, advice)


_ALTERED = (
    f"kafka-configs.sh --alter --entity-type topics --entity-name {LANES} --add-config "
    "'cleanup.policy=[compact,delete],message.timestamp.type=LogAppendTime,retention.ms=604800000,"
    "segment.bytes=1048576,segment.ms=691200000,unclean.leader.election.enable=false'"
)


@pytest.mark.parametrize(
    ("changes", "said", "advice"),
    [
        ({"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}, "Time: topic keeps entries", _ALTERED),
        ({"cleanup.policy": "delete"}, "has cleanup.policy=delete: topic keeps", _ALTERED),
        ({"message.timestamp.type": "CreateTime"}, "instances that never return; see docs/operations.md", _ALTERED),
        ({"retention.ms": "-1"}, "entries of instances that never return stay", _ALTERED),
        ({"retention.ms": "604799999"}, "not write its entries again in time", "set producer.state.log.retention.ms "),
        ({"retention.ms": "604800001"}, "", ""),
    ],
)
async def test_a_log_of_producer_ids_that_keeps_what_dead_instances_left(
    changes: Settings, said: str, advice: str
) -> None:
    async with fake() as cluster:
        make_own(cluster, lanes=changes)
        lanes, _ = topic_checks.own_topics(await examined(cluster))
    assert lanes.level == (Level.WARN if said else Level.OK)
    assert said in lanes.found
    assert lanes.advice[: len(advice)] == advice


async def test_a_topic_of_announcements_is_needed_by_those_that_announce_themselves() -> None:
    async with fake() as cluster:
        make_own(cluster)
        for interval_ms, count in (0, 2), (60_000, 3):
            found = await examined(cluster, fleet_announce_interval_ms=interval_ms)
            assert levels(topic_checks.own_topics, found) == [Level.OK] * count


async def test_too_few_replicas() -> None:
    async with fake() as cluster:
        make_own(cluster, replicas=1, lanes={"min.insync.replicas": "1"}, log={"min.insync.replicas": "1"})
        found = await examined(cluster)
    assert levels(topic_checks.own_topics, found) == [Level.WARN, Level.WARN]


async def test_acknowledged_by_one_alone_or_standing_still_with_one_down() -> None:
    async with fake() as cluster:
        make_own(cluster, lanes={"min.insync.replicas": "1"}, log={"min.insync.replicas": "3"})
        found = await examined(cluster)
    lanes, log = topic_checks.own_topics(found)
    assert "on 1 broker alone" in lanes.found
    assert "stops when one broker is down" in log.found


async def test_partitions_that_take_no_writes() -> None:
    async with fake() as cluster:
        make_own(cluster)
        for broker in (2, 3):
            cluster.cluster.pause_replication(broker)
            cluster.cluster.shrink_isr(broker)
        found = await examined(cluster)
    assert Level.FAIL in levels(topic_checks.own_topics, found)
    assert levels(topic_checks.replication, found) == [Level.WARN]


async def test_partitions_without_a_leader() -> None:
    async with fake(2) as cluster:
        cluster.cluster.create_topic("orders", 2, 1)
        await cluster.stop_broker(2)
        found = await examined(cluster)
    finding = only(topic_checks.replication, found)
    assert finding.level is Level.FAIL
    assert finding.found.startswith("1 partitions have no leader: orders-")


async def test_topics_that_take_less_than_kproxy_makes() -> None:
    async with fake() as cluster:
        cluster.cluster.create_topic("orders", 1, 1)
        assert levels(topic_checks.message_sizes, await examined(cluster)) == [Level.OK]
        cluster.cluster.create_topic("small", 1, 1, {"max.message.bytes": "100000"})
        finding = only(topic_checks.message_sizes, await examined(cluster))
    assert finding.level is Level.WARN
    assert "small 100000" in finding.found
    assert "max.message.bytes to 100000" in finding.advice
