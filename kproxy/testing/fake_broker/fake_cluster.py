"""A fake cluster and all that a test may do to it: faults of requests, brokers, replicas, disks, the controller.

Everything happens at once and only when asked for: no replica falls out of sync by itself, nothing is cleaned by a
timer. So a test, or a simulation with its own clock, decides what happens when.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker.cluster_state import CLUSTER_ID, Broker, ClusterConfig, ClusterState
from kproxy.testing.fake_broker.controls import Control, ControlFunction
from kproxy.testing.fake_broker.log_cleaner import is_compacted
from kproxy.testing.fake_broker.markers import write_markers
from kproxy.testing.fake_broker.partition import NO_LEADER, Partition, Topic
from kproxy.testing.fake_broker.transactional_ids import TransactionalId, TxnState

__all__ = ["CLUSTER_ID", "Broker", "ClusterConfig", "FakeCluster", "TransactionalId"]


@dataclass(slots=True)
class FakeCluster(ClusterState):
    """The state and what may be done to it; see ``ClusterState`` for its parameters."""

    def control(self, key: ApiKey, function: ControlFunction, *, times: int | None = None) -> Control:
        """Let ``function`` meddle with the requests of one API key (see ``faults``).

        :param times: stop after so many faults; None means never. ``controls.remove`` ends it earlier.
        """
        return self.controls.add(key, function, times)

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make ``broker_id`` the leader of a partition, under the next leader epoch.

        A broker from outside the replicas becomes one first; one that had not copied all loses the rest.

        :raises ValueError: a replica that is not in sync; only ``elect_unclean`` makes it the leader.
        """
        moved = self.topics[topic].partitions[partition]
        moved.adopt(broker_id)
        if broker_id not in moved.isr:
            raise ValueError(f"broker {broker_id} is not in sync on {topic}-{partition}")
        self._lead(self.topics[topic], moved, broker_id)

    def elect_unclean(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a replica the leader although it is not in sync: what it has not copied is lost for good."""
        self._lead(self.topics[topic], self.topics[topic].partitions[partition], broker_id)

    def broker_down(self, broker_id: int) -> None:
        """Take a broker out: its partitions go to an in-sync replica, or have no leader."""
        self.brokers[broker_id].alive = False
        self._settle_all()

    def broker_up(self, broker_id: int) -> None:
        """Bring a broker back; it catches up, and leads again only what nobody else leads.

        There it knows of its producers what is on disk: no expired ones, and of the others the last batch only.
        """
        self.brokers[broker_id].alive = True
        self.paused.discard(broker_id)
        self._settle_all()
        for _, partition in self._partitions():
            if partition.leader == broker_id:
                partition.log.producers.reload(self.clock())

    def pause_replication(self, broker_id: int) -> None:
        """Let a broker's replicas stop following: they stay in sync and hold the high watermark back."""
        self.paused.add(broker_id)
        self._settle_all()

    def resume_replication(self, broker_id: int) -> None:
        """Let a broker's replicas catch up and be in sync again."""
        self.paused.discard(broker_id)
        self._settle_all()

    def shrink_isr(self, broker_id: int) -> None:
        """Count a broker's replicas that have stopped as out of sync, as after ``replica.lag.time.max.ms``."""
        for _, partition in self._partitions():
            if partition.holds(broker_id):
                partition.shrink(broker_id)
        write_markers(self)
        self.notify()

    def controller_down(self) -> None:
        """Take the controllers out: no elections, no topics, no blocks of producer ids; in-sync replicas stay."""
        self.controller_alive = False

    def controller_up(self) -> None:
        """Bring the controllers back; what was due is done at once."""
        self.controller_alive = True
        self._settle_all()

    def disk_full(self, broker_id: int) -> None:
        """Fail a broker's log directory: what it led moves, and it answers KAFKA_STORAGE_ERROR for its replicas.

        A real broker ends when its last directory has failed; ``stop_broker`` of the server does that part.
        """
        self.brokers[broker_id].failed = True
        self._settle_all()

    def disk_repaired(self, broker_id: int) -> None:
        """Give a broker its log directory back, as a restart with free space does."""
        self.brokers[broker_id].failed = False
        self.broker_up(broker_id)

    def hold_markers(self) -> None:
        """Let ended transactions stay prepared: their markers are not written until ``release_markers``."""
        self.markers_held = True

    def release_markers(self) -> None:
        """Write the markers that were held, and those to come."""
        self.markers_held = False
        write_markers(self)

    def move_coordinator(self, key: str, broker_id: int) -> None:
        """Let a broker coordinate a group or a transactional id; it knows all that the one before has known."""
        self.moved[key] = broker_id

    def load_coordinators(self, broker_id: int) -> None:
        """Let a broker's coordinators read what they are to know: until ``coordinators_loaded`` they say just that."""
        self.loading.add(broker_id)

    def coordinators_loaded(self, broker_id: int) -> None:
        """Let them answer again."""
        self.loading.discard(broker_id)

    def expire_transactional_id(self, name: str) -> None:
        """Forget an id as ``transactional.id.expiration.ms`` does; one whose transaction is open or prepared stays."""
        owner = self.transactional_ids.get(name)
        if owner is not None and owner.state is not TxnState.ONGOING and not owner.prepared:
            del self.transactional_ids[name]

    def apply_retention(self) -> None:
        """Throw away what ``retention.ms`` and ``retention.bytes`` of every topic allow now."""
        for _, partition in self._partitions():
            partition.log.apply_retention(self.clock(), partition.high_watermark)
        self.notify()

    def compact(self, topic: str, partition: int, end: int | None = None) -> None:
        """Compact a partition.

        :param end: where the active segment begins, which stays as it is; None: the last batch is the active segment.
        :raises ValueError: the topic's ``cleanup.policy`` has no compaction.
        """
        if not is_compacted(self.topics[topic].config):
            raise ValueError(f"cleanup.policy of {topic} is not compact")
        self.topics[topic].partitions[partition].log.compact(end)

    def expire_producers(self, topic: str, partition: int) -> None:
        """Forget a partition's producers as ``producer.id.expiration.ms`` does; one whose transaction is open stays."""
        self.topics[topic].partitions[partition].log.expire_producers()

    def forget_producers(self, topic: str, partition: int) -> None:
        """Let a partition know only the producers whose batches are still in its log (see ``PartitionLog``)."""
        self.topics[topic].partitions[partition].log.forget_producers(self.clock())

    def _partitions(self) -> Iterator[tuple[Topic, Partition]]:
        for topic in self.topics.values():
            for partition in topic.partitions:
                yield topic, partition

    def _lead(self, topic: Topic, partition: Partition, broker_id: int) -> None:
        former = partition.leader
        if former in self.brokers and not self._follows(former):
            partition.hold(former)
        partition.lead(broker_id)
        self._settle(topic, partition)
        write_markers(self)
        self.notify()

    def _follows(self, node: int) -> bool:
        return self.brokers[node].serves and node not in self.paused

    def _settle_all(self) -> None:
        """Do what the controller and the replicas do after a change."""
        if self.controller_alive:
            for broker in self.brokers.values():
                broker.listed = broker.alive
        for topic, partition in self._partitions():
            self._settle(topic, partition)
        write_markers(self)
        self.notify()

    def _settle(self, topic: Topic, partition: Partition) -> None:
        leads = partition.leader != NO_LEADER and self.brokers[partition.leader].serves
        for node in partition.replicas:
            if not self._follows(node) and not (leads and node == partition.leader):
                partition.hold(node)
        if self.controller_alive:
            for node in partition.replicas:
                if not self.brokers[node].serves:
                    partition.shrink(node)
            if not leads:
                leads = self._elect(topic, partition)
        if leads:
            for node in partition.replicas:
                if self._follows(node):
                    partition.follow(node, join=self.controller_alive)

    def _elect(self, topic: Topic, partition: Partition) -> bool:
        """Give a partition the leader it can have; tell whether there is one."""
        unclean = topic.config.get("unclean.leader.election.enable") == "true"
        alive = [node for node, broker in self.brokers.items() if broker.serves]
        chosen = partition.candidate(alive, unclean=unclean)
        if chosen != partition.leader:
            partition.lead(chosen)
        return chosen != NO_LEADER
