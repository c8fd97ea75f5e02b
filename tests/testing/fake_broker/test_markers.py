"""When markers are written, and what becomes of transactions that nobody ends."""

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group
from kproxy.testing.fake_broker.fake_cluster import Broker, FakeCluster
from kproxy.testing.fake_broker.group_members import CommittedOffset
from kproxy.testing.fake_broker.markers import end_transaction, expire_transactions
from kproxy.testing.fake_broker.partition import Partition
from kproxy.testing.fake_broker.transactional_ids import TransactionalId, TxnState

PLACE = ("t", 0)


class Stage:
    """Two brokers, of which one leads ``t``; a producer with one open batch there, and offsets of a group."""

    def __init__(self, replication: int = 1) -> None:
        self.now = 0
        self.cluster = FakeCluster(lambda: self.now, brokers={n: Broker(n, f"broker-{n}", 9092) for n in (1, 2)})
        self.cluster.create_topic("t", 1, replication)
        self.owner = self.cluster.transactional_ids["id"] = TransactionalId(7, 0, timeout_ms=100)
        self.owner.join(self.now, [PLACE], ["g"])
        data = build_batch([Record(0, 0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        assert self.partition.log.append(memoryview(data), 0, self.now).error is ErrorCode.NONE
        self.group = self.cluster.groups["g"] = Group("g")
        self.group.commit_pending(7, PLACE, CommittedOffset(5, -1, ""))

    @property
    def partition(self) -> Partition:
        return self.cluster.topics["t"].partitions[0]

    def end(self, committed: bool = True) -> None:
        assert self.owner.end(7, 0, committed) is ErrorCode.NONE
        end_transaction(self.cluster, self.owner)


def test_the_end_is_complete_with_the_last_marker() -> None:
    stage = Stage()
    stage.end()
    assert (stage.owner.state, stage.partition.log.end_offset) == (TxnState.COMPLETE_COMMIT, 2)
    assert stage.group.offsets[PLACE].offset == 5
    end_transaction(stage.cluster, stage.owner)
    assert stage.partition.log.end_offset == 2


def test_held_markers_are_written_when_they_are_released() -> None:
    stage = Stage()
    stage.cluster.hold_markers()
    stage.end()
    assert (stage.owner.prepared, stage.partition.log.end_offset) == (True, 1)
    assert stage.group.is_unstable(PLACE)
    stage.cluster.release_markers()
    assert (stage.owner.state, stage.partition.log.end_offset) == (TxnState.COMPLETE_COMMIT, 2)


def test_a_partition_without_a_leader_gets_its_marker_when_it_has_one() -> None:
    stage = Stage()
    stage.cluster.broker_down(1)
    stage.end(committed=False)
    assert stage.owner.prepared
    stage.cluster.broker_up(1)
    assert (stage.owner.state, stage.partition.log.end_offset) == (TxnState.COMPLETE_ABORT, 2)
    assert stage.group.offsets == {}


def test_a_marker_that_is_not_replicated_completes_nothing() -> None:
    stage = Stage(replication=2)
    stage.cluster.pause_replication(2)
    stage.end()
    assert (stage.owner.prepared, stage.partition.log.end_offset) == (True, 2)
    stage.cluster.shrink_isr(2)
    assert (stage.owner.state, stage.partition.log.end_offset) == (TxnState.COMPLETE_COMMIT, 2)


def test_a_marker_that_was_lost_with_its_leader_is_written_again() -> None:
    stage = Stage(replication=2)
    stage.cluster.pause_replication(2)
    stage.end()
    assert stage.owner.prepared
    stage.cluster.broker_down(1)
    assert (stage.owner.state, stage.partition.leader) == (TxnState.COMPLETE_COMMIT, 2)
    assert stage.partition.log.transactions.stable_offset(stage.partition.high_watermark) == 2


def test_a_deleted_topic_needs_none() -> None:
    stage = Stage()
    stage.cluster.delete_topic("t")
    stage.end()
    assert stage.owner.state is TxnState.COMPLETE_COMMIT


def test_what_takes_too_long_is_aborted_and_fenced() -> None:
    stage = Stage()
    stage.now = 99
    expire_transactions(stage.cluster)
    assert stage.owner.state is TxnState.ONGOING
    stage.now = 100
    expire_transactions(stage.cluster)
    assert (stage.owner.state, stage.owner.epoch) == (TxnState.COMPLETE_ABORT, 1)
    assert stage.partition.log.append_marker(7, 0, False, 0, 0, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
