"""One partition's replicas: the high watermark, who may lead, what an election loses."""

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.fake_broker.partition import NO_LEADER, Partition
from kproxy.testing.fake_broker.partition_log import PartitionLog


def replicated(*nodes: int, min_isr: int = 1) -> Partition:
    """A partition whose first replica leads."""
    return Partition(0, PartitionLog({}), list(nodes), nodes[0], min_isr=min_isr)


def append(partition: Partition, count: int = 1) -> None:
    for _ in range(count):
        partition.log.append(memoryview(build_batch([Record(0, 1, None, b"v")])), partition.leader_epoch, 1)


def test_the_high_watermark_is_the_end_when_all_follow() -> None:
    partition = replicated(1, 2, 3)
    append(partition, 2)
    assert (partition.high_watermark, partition.isr) == (2, [1, 2, 3])


def test_it_waits_for_the_slowest_in_sync_replica_only() -> None:
    partition = replicated(1, 2, 3)
    append(partition)
    partition.hold(2)
    append(partition)
    assert partition.high_watermark == 1
    partition.shrink(2)
    assert partition.high_watermark == 2
    append(partition)
    assert (partition.high_watermark, partition.log_end(2)) == (3, 1)


def test_it_does_not_move_while_too_few_are_in_sync_and_never_goes_back() -> None:
    partition = replicated(1, 2, min_isr=2)
    append(partition)
    partition.hold(2)
    partition.shrink(2)
    append(partition)
    assert (partition.under_min_isr, partition.high_watermark) == (True, 1)
    partition.follow(2)
    assert (partition.under_min_isr, partition.high_watermark) == (False, 2)


def test_fewer_replicas_than_asked_for_are_enough() -> None:
    assert not replicated(1, min_isr=2).under_min_isr


def test_without_a_controller_a_replica_follows_but_is_not_in_sync() -> None:
    partition = replicated(1, 2)
    partition.hold(2)
    partition.shrink(2)
    append(partition)
    partition.follow(2, join=False)
    assert (partition.isr, partition.log_end(2)) == ([1], 1)


def test_candidates_are_in_sync_or_eligible_or_anyone_if_unclean() -> None:
    partition = replicated(1, 2, 3, min_isr=2)
    partition.shrink(3)
    partition.shrink(2)
    partition.shrink(1)
    assert (partition.isr, partition.eligible) == ([], [2, 1])
    assert partition.candidate({1, 2, 3}) == 1
    assert partition.candidate({2, 3}) == 2
    assert partition.candidate({3}) == NO_LEADER
    assert partition.candidate({3}, unclean=True) == 3


def test_a_clean_election_loses_what_is_above_the_high_watermark() -> None:
    partition = replicated(1, 2, 3)
    append(partition)
    partition.hold(2)
    partition.hold(1)
    append(partition, 2)
    partition.lead(2)
    assert (partition.log.end_offset, partition.high_watermark, partition.leader_epoch) == (1, 1, 1)
    assert partition.log_end(1) == 1


def test_an_unclean_election_moves_the_high_watermark_back() -> None:
    partition = replicated(1, 2)
    append(partition)
    partition.hold(2)
    partition.shrink(2)
    append(partition, 2)
    assert partition.high_watermark == 3
    partition.lead(2)
    assert (partition.isr, partition.high_watermark, partition.log.end_offset) == ([2], 1, 1)
    append(partition)
    assert partition.log.leader_epoch_at(1) == 1


def test_an_eligible_leader_keeps_the_others_eligible() -> None:
    partition = replicated(1, 2, 3, min_isr=3)
    for node in (3, 2, 1):
        partition.shrink(node)
    partition.lead(2)
    assert (partition.isr, partition.eligible) == ([2], [3, 1])
    partition.follow(1)
    partition.follow(3)
    assert partition.eligible == []


def test_a_newcomer_has_copied_everything() -> None:
    partition = replicated(1)
    append(partition)
    partition.adopt(2)
    partition.adopt(2)
    assert (partition.replicas, partition.isr, partition.high_watermark) == ([1, 2], [1, 2], 1)
