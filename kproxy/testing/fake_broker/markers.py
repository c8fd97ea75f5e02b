"""What the coordinators do by themselves: markers into the partitions of ended transactions, and time-outs.

Markers are written at once unless a test holds them, or a partition has no leader that can take them. A transaction is
complete when they are replicated: a leader that was elected before that gets its marker again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.transactional_ids import Mark

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition
    from kproxy.testing.fake_broker.cluster_state import ClusterState
    from kproxy.testing.fake_broker.partition import Partition
    from kproxy.testing.fake_broker.transactional_ids import TransactionalId

_COORDINATOR_EPOCH: Final = 0


def write_markers(cluster: ClusterState) -> None:
    """Write what markers can be written; a transaction that has all of them is complete."""
    for owner in cluster.transactional_ids.values():
        end_transaction(cluster, owner)


def expire_transactions(cluster: ClusterState) -> None:
    """Abort what is open for longer than its time-out."""
    now = cluster.clock()
    for owner in cluster.transactional_ids.values():
        if owner.is_expired(now):
            owner.fence()
            end_transaction(cluster, owner)


def end_transaction(cluster: ClusterState, owner: TransactionalId) -> None:
    """Complete a prepared transaction as far as that can be done now; nothing is done for any other."""
    if owner.prepared and not cluster.markers_held:
        _end(cluster, owner)


def _end(cluster: ClusterState, owner: TransactionalId) -> None:
    owner.places = {place for place in owner.places if not _mark(cluster, owner, place)}
    for name in owner.groups:
        if name in cluster.groups:
            cluster.groups[name].end_transaction(owner.producer_id, owner.committed)
    owner.groups.clear()
    if not owner.places:
        owner.complete()
    cluster.notify()


def _mark(cluster: ClusterState, owner: TransactionalId, place: TopicPartition) -> bool:
    """Write one marker; tell whether that is done and replicated, or there is nowhere to write it."""
    topic = cluster.topics.get(place[0])
    if topic is None or place[1] >= len(topic.partitions):  # deleted since, perhaps created again
        return True
    partition = topic.partitions[place[1]]
    if not _takes_markers(cluster, partition):
        return False
    mark = owner.marks.get(place)
    if mark is None or mark.partition is not partition or mark.leader_epoch != partition.leader_epoch:
        error = partition.log.append_marker(
            owner.producer_id, owner.epoch, owner.committed, _COORDINATOR_EPOCH, partition.leader_epoch, cluster.clock()
        )
        if error is not ErrorCode.NONE:
            # a partition where somebody has gone further takes no marker, nor does it need one
            return error is ErrorCode.INVALID_PRODUCER_EPOCH
        mark = owner.marks[place] = Mark(partition, partition.leader_epoch, partition.log.end_offset)
    return partition.high_watermark >= mark.end


def _takes_markers(cluster: ClusterState, partition: Partition) -> bool:
    broker = cluster.brokers.get(partition.leader)
    return broker is not None and broker.serves and not partition.under_min_isr
