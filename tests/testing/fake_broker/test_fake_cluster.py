"""The state of a cluster: topics, leaders, coordinators, producer ids."""

import pytest
import trio
import trio.testing

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group
from kproxy.testing.fake_broker.fake_cluster import Broker, ClusterConfig, FakeCluster
from kproxy.testing.fake_broker.group_members import CommittedOffset
from kproxy.testing.fake_broker.partition import NO_LEADER


def cluster(brokers: int = 3, config: ClusterConfig | None = None) -> FakeCluster:
    nodes = {number: Broker(number, f"broker-{number}", 9092) for number in range(1, brokers + 1)}
    return FakeCluster(lambda: 0, config or ClusterConfig(), nodes)


def test_a_topic_takes_the_brokers_defaults() -> None:
    fake = cluster(config=ClusterConfig(num_partitions=2, default_replication_factor=3))
    assert fake.create_topic("t") is ErrorCode.NONE
    assert [len(partition.replicas) for partition in fake.topics["t"].partitions] == [3, 3]


def test_leaders_are_dealt_out_to_the_live_brokers_in_turn() -> None:
    fake = cluster()
    fake.broker_down(2)
    fake.create_topic("t", partitions=4, replication=2)
    assert [partition.leader for partition in fake.topics["t"].partitions] == [1, 3, 1, 3]
    assert fake.topics["t"].partitions[1].replicas == [3, 1]


@pytest.mark.parametrize(
    ("name", "partitions", "replication", "error"),
    [
        ("a b", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("taken", 1, 1, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("t", 0, 1, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", 1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_topic_that_cannot_be(name: str, partitions: int, replication: int, error: ErrorCode) -> None:
    fake = cluster()
    fake.create_topic("taken")
    assert fake.create_topic(name, partitions, replication) is error
    assert list(fake.topics) == ["taken"]


def test_validation_alone_creates_nothing() -> None:
    fake = cluster()
    assert fake.create_topic("t", validate_only=True) is ErrorCode.NONE
    assert not fake.topics


def test_a_topic_created_again_has_another_id() -> None:
    fake = cluster()
    fake.create_topic("t")
    old = fake.topics["t"].topic_id
    fake.delete_topic("t")
    fake.create_topic("t")
    assert fake.topic_by_id(old) is None
    assert fake.topic_by_id(fake.topics["t"].topic_id) is fake.topics["t"]


def test_a_deleted_topic_takes_the_committed_offsets_along() -> None:
    fake = cluster()
    fake.create_topic("t")
    fake.groups["g"] = Group("g", offsets={("t", 0): CommittedOffset(1, -1, None)})
    assert fake.delete_topic("t") is ErrorCode.NONE
    assert fake.groups["g"].offsets == {}
    assert fake.delete_topic("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_of_a_broker_that_goes_move_to_a_live_replica() -> None:
    fake = cluster()
    fake.create_topic("t", replication=2)
    (partition,) = fake.topics["t"].partitions
    fake.broker_down(1)
    assert (partition.leader, partition.leader_epoch) == (2, 1)
    fake.broker_down(2)
    assert (partition.leader, partition.leader_epoch) == (NO_LEADER, 2)
    fake.broker_up(1)
    assert partition.leader == NO_LEADER
    fake.broker_up(2)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 3, [2, 1])


def test_a_leader_from_outside_becomes_a_replica() -> None:
    fake = cluster()
    fake.create_topic("t")
    fake.move_leader("t", 0, 3)
    (partition,) = fake.topics["t"].partitions
    assert (partition.leader, partition.replicas, partition.leader_epoch) == (3, [1, 3], 1)


def test_a_coordinator_is_steady_and_only_its_own_death_moves_it() -> None:
    fake = cluster()
    first = fake.coordinator_of("g")
    assert first is not None
    assert fake.coordinator_of("g") is first
    fake.broker_down(first.node_id)
    second = fake.coordinator_of("g")
    assert second is not None
    assert second is not first
    fake.broker_up(first.node_id)
    assert fake.coordinator_of("g") is first
    for node in tuple(fake.brokers):
        fake.broker_down(node)
    assert fake.coordinator_of("g") is None


def test_brokers_hand_out_producer_ids_from_blocks_of_their_own() -> None:
    fake = cluster()
    assert [fake.next_producer_id(broker) for broker in (1, 2, 1, 2)] == [0, 1000, 1, 1001]
    ids = [fake.next_producer_id(1) for _ in range(999)]
    assert ids[-2:] == [999, 2000]


async def test_a_task_that_waits_for_a_change_is_woken() -> None:
    fake = cluster()
    fake.create_topic("t")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.wait_for_change)
        await trio.testing.wait_all_tasks_blocked()
        fake.move_leader("t", 0, 2)


def test_a_replica_out_of_sync_leads_only_uncleanly() -> None:
    fake = cluster()
    fake.create_topic("t", replication=2)
    (partition,) = fake.topics["t"].partitions
    fake.pause_replication(2)
    fake.shrink_isr(2)
    with pytest.raises(ValueError, match="not in sync"):
        fake.move_leader("t", 0, 2)
    fake.elect_unclean("t", 0, 2)
    assert (partition.leader, partition.isr) == (2, [2, 1])


def test_a_topic_may_allow_unclean_elections() -> None:
    fake = cluster()
    fake.create_topic("t", replication=2, config={"unclean.leader.election.enable": "true"})
    (partition,) = fake.topics["t"].partitions
    fake.broker_down(2)
    fake.broker_down(1)
    fake.broker_up(2)
    assert (partition.leader, partition.isr) == (2, [2])


def test_partitions_of_a_failed_disk_move_and_come_back() -> None:
    fake = cluster()
    fake.create_topic("t", partitions=2, replication=2)
    fake.disk_full(1)
    assert [partition.leader for partition in fake.topics["t"].partitions] == [2, 2]
    assert fake.topics["t"].partitions[0].isr == [2]
    fake.create_topic("elsewhere")
    assert fake.topics["elsewhere"].partitions[0].leader == 2
    fake.disk_repaired(1)
    assert fake.topics["t"].partitions[0].isr == [2, 1]


def test_only_compacted_topics_are_compacted() -> None:
    fake = cluster()
    fake.create_topic("t")
    with pytest.raises(ValueError, match="not compact"):
        fake.compact("t", 0)


def test_producers_expire_but_those_in_a_transaction() -> None:
    fake = cluster()
    fake.create_topic("t")
    log = fake.topics["t"].partitions[0].log
    for producer_id in (7, 8):
        data = build_batch(
            [Record(0, 0, None, b"v")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=producer_id == 7,
        )
        assert log.append(memoryview(data), 0, 0).error is ErrorCode.NONE
    fake.expire_producers("t", 0)
    assert [producer_id for producer_id, _ in log.producers.items()] == [7]


def test_a_broker_without_a_disk_gets_no_replicas_of_a_new_topic() -> None:
    fake = cluster()
    fake.disk_full(1)
    assert fake.create_topic("t", 1, 3) == ErrorCode.INVALID_REPLICATION_FACTOR
    fake.disk_full(2)
    fake.disk_full(3)
    assert fake.create_topic("t", 1, 1) == ErrorCode.INVALID_REPLICATION_FACTOR
