"""MirrorMaker 2 and 1: they copy a topic from a Kafka of their own."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import DEFAULT_VERSION, RealKafka
from verification.agents.agent import TOPIC, AgentFailed, Process
from verification.agents.java import SIMPLE_LOG, JavaAgent
from verification.agents.packages import Unpacked

__all__ = ["Mirror", "MirrorMaker1", "MirrorMaker2"]

#: What MirrorMaker 2 keeps in topics of its own; three replicas are its default.
_OWN_TOPICS: Final = (
    *("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic"),
    *("config.storage", "offset.storage", "status.storage"),
)


class Mirror(JavaAgent):
    """Copies the topic; lines are written to the Kafka that it reads from."""

    #: Of the Kafka that it reads from.
    source_release = DEFAULT_VERSION

    def __init__(self, directory: Path, bootstrap: str) -> None:
        super().__init__(directory, bootstrap)
        self.source = RealKafka(version=self.source_release, directory=directory / "source")

    @contextmanager
    def running(self) -> Iterator[Process]:
        with self.source:
            with ClusterClient(self.source.bootstrap) as client:
                client.create_topic(TOPIC)
            with super().running() as process:
                yield process

    def write(self, lines: Sequence[str], process: Process) -> None:
        now = int(time.time() * 1000)
        records = [Record(nth, now, None, one.encode()) for nth, one in enumerate(lines)]
        with ClusterClient(self.source.bootstrap) as client:
            if error := client.produce(TOPIC, 0, build_batch(records)).error_code:
                raise AgentFailed(f"{self.name}'s source refused lines: error {error}")


class MirrorMaker2(Mirror):
    """Kafka Connect's, which turns its producers' idempotence off."""

    name = "mirrormaker2"
    title = "MirrorMaker 2 of Kafka"
    directly = "starts no task"
    release = "4.3.0"
    artefacts = (f"org.apache.kafka:connect-mirror:{release}", SIMPLE_LOG)

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        alone = "".join(f"{kind}.replication.factor=1\n" for kind in _OWN_TOPICS)
        path = self.settings(
            "mirror.properties",
            f"""clusters=source, target
source.bootstrap.servers={self.source.bootstrap}
target.bootstrap.servers={self.bootstrap}
source->target.enabled=true
source->target.topics={TOPIC}
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor=1
{alone}""",
        )
        return self.java(unpacked, "org.apache.kafka.connect.mirror.MirrorMaker", str(path))


class MirrorMaker1(Mirror):
    """Of Kafka 0.8.2, with its new producer; reads from a Kafka that has a ZooKeeper."""

    name = "mirrormaker1"
    title = "MirrorMaker 1 of Kafka"
    needs = "`--new.producer`, `retries`"
    directly = "refused by Kafka 4"
    release = "0.8.2.2"
    source_release = "2.8.2"
    artefacts = (f"org.apache.kafka:kafka_2.11:{release}",)

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        consumer = self.settings(
            "consumer.properties",
            f"zookeeper.connect={self.source.zookeeper}\ngroup.id=mirror\nauto.offset.reset=smallest\n",
        )
        producer = self.settings("producer.properties", f"bootstrap.servers={self.bootstrap}\nretries=2147483647\n")
        files = ("--consumer.config", str(consumer), "--producer.config", str(producer))
        return self.java(unpacked, "kafka.tools.MirrorMaker", *files, "--new.producer", "--whitelist", TOPIC)
