"""The settings of one broker of a real Kafka for tests: by its place in the cluster, with KRaft or with ZooKeeper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """One broker of a cluster on loopback.

    :param listeners: the port of each listener, by name.
    :param controller_ports: of each broker's controller; the first is ZooKeeper's where there are no controllers.
    """

    node: int
    brokers: int
    listeners: Mapping[str, int]
    controller_ports: Sequence[int]
    data: Path

    def in_kraft(self) -> dict[str, object]:
        """Return the settings of a broker that is a controller, too."""
        voters = ",".join(f"{n + 1}@127.0.0.1:{port}" for n, port in enumerate(self.controller_ports))
        return {
            "process.roles": "broker,controller",
            "node.id": self.node,
            "controller.quorum.voters": voters,
            "listeners": self._addresses({**self.listeners, "CONTROLLER": self.controller_ports[self.node - 1]}),
            "controller.listener.names": "CONTROLLER",
            "share.coordinator.state.topic.replication.factor": min(3, self.brokers),
            "share.coordinator.state.topic.min.isr": min(2, self.brokers),
            "group.streams.initial.rebalance.delay.ms": 0,
            # Failures shall be noticed within a test's patience, not within production's 9 and 2 s.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            # Twice a second a controller would append a record only to show that it is there.
            "metadata.max.idle.interval.ms": 0,
            **self._common(),
        }

    def with_zookeeper(self) -> dict[str, object]:
        """Return the settings of a broker before KRaft."""
        return {
            "broker.id": self.node,
            "zookeeper.connect": f"127.0.0.1:{self.controller_ports[0]}",
            # A machine that does much else must not end a broker's session.
            "zookeeper.connection.timeout.ms": 60_000,
            "zookeeper.session.timeout.ms": 60_000,
            "listeners": self._addresses(self.listeners),
            **self._common(),
        }

    def _addresses(self, listeners: Mapping[str, int]) -> str:
        return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())

    def _common(self) -> dict[str, object]:
        return {
            "log.dirs": self.data,
            "num.partitions": 1,
            "auto.create.topics.enable": "true",
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": min(3, self.brokers),
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": min(3, self.brokers),
            "transaction.state.log.min.isr": min(2, self.brokers),
            "group.initial.rebalance.delay.ms": 0,
            # Noticed within a test's patience, not within production's 10 s.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            # Records may bear any time. A broker would look for those of more than a week ago 30 s after its start.
            "log.retention.ms": -1,
        }
