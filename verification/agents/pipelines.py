"""Programs in Java that follow a file: Kafka Connect and Flume."""

from collections.abc import Sequence
from typing import Final

from verification.agents.agent import TOPIC, FollowsFile
from verification.agents.java import SIMPLE_LOG, JavaAgent
from verification.agents.packages import Unpacked

__all__ = ["Connect", "Flume"]

_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"


class Connect(JavaAgent, FollowsFile):
    """A standalone worker with FileStreamSource. Connect turns its producers' idempotence off."""

    name = "connect"
    title = "Kafka Connect FileStreamSource"
    release = "4.3.0"
    artefacts = (
        f"org.apache.kafka:connect-runtime:{release}",
        f"org.apache.kafka:connect-file:{release}",
        SIMPLE_LOG,
    )

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        worker = self.settings(
            "worker.properties",
            f"""bootstrap.servers={self.bootstrap}
key.converter={_STRING}
value.converter={_STRING}
offset.storage.file.filename={self.directory}/offsets
plugin.discovery=service_load
listeners=http://127.0.0.1:0
""",
        )
        source = self.settings(
            "source.properties",
            f"""name=lines
connector.class=FileStreamSource
file={self.input}
topic={TOPIC}
""",
        )
        self.input.touch()
        return self.java(unpacked, "org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(source))


class Flume(JavaAgent, FollowsFile):
    """Its Kafka sink, after a channel in memory."""

    name = "flume"
    title = "Flume Kafka sink"
    release = "1.11.0"
    artefacts = (
        f"org.apache.flume:flume-ng-node:{release}",
        f"org.apache.flume.flume-ng-sinks:flume-ng-kafka-sink:{release}",
        f"org.apache.flume.flume-ng-sources:flume-taildir-source:{release}",
        SIMPLE_LOG,
    )

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        path = self.settings(
            "flume.properties",
            f"""agent.sources=file
agent.channels=memory
agent.sinks=kafka
agent.sources.file.type=TAILDIR
agent.sources.file.positionFile={self.directory}/positions
agent.sources.file.filegroups=lines
agent.sources.file.filegroups.lines={self.input}
agent.sources.file.channels=memory
agent.channels.memory.type=memory
agent.channels.memory.capacity=10000
agent.channels.memory.transactionCapacity=1000
agent.sinks.kafka.type=org.apache.flume.sink.kafka.KafkaSink
agent.sinks.kafka.kafka.bootstrap.servers={self.bootstrap}
agent.sinks.kafka.kafka.topic={TOPIC}
agent.sinks.kafka.channel=memory
""",
        )
        self.input.touch()
        return self.java(
            unpacked,
            "org.apache.flume.node.Application",
            "--name",
            "agent",
            "--conf-file",
            str(path),
            "--no-reload-conf",
        )
