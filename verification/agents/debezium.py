"""Debezium Server: it follows a database's changes, and writes each to Kafka."""

import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kproxy.testing.cache import installed
from kproxy.testing.maven import find_java, maven_environment
from kproxy.testing.tools import find_tool, run_tool
from verification.agents.agent import TOPIC, AgentFailed, Process
from verification.agents.java import JavaAgent
from verification.agents.packages import Unpacked
from verification.agents.postgres import PostgreSQL

__all__ = ["Debezium"]

_STRING: Final = "org.apache.kafka.common.serialization.StringSerializer"
#: Of the distribution only these are unpacked: neither Cassandra's connectors nor optional libraries.
_KEPT: Final = ("debezium-server/lib/", "debezium-server/debezium-server-dist-")


class Debezium(JavaAgent):
    """Its sink ``kafka``, after PostgreSQL's logical decoding; each line is a row. It needs Java 21.

    Its producer is idempotent, as Java's are by default. A broker that is started again knows only the last batch of
    each producer, and refuses a retry of an earlier one. The producer then sends it as a new batch: so there is one
    request in flight here.
    """

    name = "debezium"
    title = "Debezium Server `kafka`"
    needs = "`debezium.sink.kafka.producer.max.in.flight.requests.per.connection=1`"
    release = "3.6.0.Final"
    artefacts = (f"io.debezium:debezium-server-dist:{release}:tar.gz",)
    java_release = 21
    start_s = 120.0

    def __init__(self, directory: Path, bootstrap: str) -> None:
        super().__init__(directory, bootstrap)
        self.database = PostgreSQL(directory / "database")

    @classmethod
    def unpacked(cls) -> Unpacked:
        return Unpacked(installed("agent-java", (*cls.artefacts, *_KEPT), cls._fill), cls.release)

    @classmethod
    def _fill(cls, target: Path) -> None:
        find_java()
        maven = find_tool("mvn", "Maven 3.6 or later (Debian: apt-get install maven)")
        with tempfile.TemporaryDirectory(dir=target) as work:
            copy = ["dependency:copy", f"-Dartifact={cls.artefacts[0]}", f"-DoutputDirectory={work}"]
            run_tool([maven, "-q", "-B", *copy], Path(work), maven_environment())
            [archive] = Path(work).iterdir()
            with tarfile.open(archive) as packed:
                packed.extractall(target, (one for one in packed if one.name.startswith(_KEPT)), filter="data")

    @contextmanager
    def running(self) -> Iterator[Process]:
        with self.database as database:
            database.execute("CREATE TABLE lines (id serial PRIMARY KEY, line text NOT NULL)")
            with super().running() as process:
                yield process

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        self.settings(
            "config/application.properties",
            f"""debezium.sink.type=kafka
debezium.sink.kafka.producer.bootstrap.servers={self.bootstrap}
debezium.sink.kafka.producer.key.serializer={_STRING}
debezium.sink.kafka.producer.value.serializer={_STRING}
debezium.sink.kafka.producer.max.in.flight.requests.per.connection=1
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.plugin.name=pgoutput
debezium.source.database.hostname=127.0.0.1
debezium.source.database.port={self.database.port}
debezium.source.database.user=postgres
debezium.source.database.password=postgres
debezium.source.database.dbname=postgres
debezium.source.table.include.list=public.lines
debezium.source.topic.prefix=database
debezium.source.offset.storage.file.filename={self.directory}/offsets
debezium.transforms=topic
debezium.transforms.topic.type=org.apache.kafka.connect.transforms.RegexRouter
debezium.transforms.topic.regex=.*
debezium.transforms.topic.replacement={TOPIC}
debezium.format.key.schemas.enable=false
debezium.format.value.schemas.enable=false
quarkus.http.port=0
quarkus.log.console.json=false
""",
        )
        return self.java(unpacked, "io.debezium.server.Main")

    def class_path(self, unpacked: Unpacked) -> str:
        home = unpacked.root / "debezium-server"
        return f"{home}/debezium-server-dist-{self.release}-runner.jar:{home}/lib/*"

    def ready(self) -> bool:
        """Whether it follows the database's log, after its first look at the table."""
        return self.database.execute("SELECT active FROM pg_replication_slots") == "t"

    def write(self, lines: Sequence[str], process: Process) -> None:
        rows = ", ".join(f"('{one}')" for one in lines)
        try:
            self.database.execute(f"INSERT INTO lines (line) VALUES {rows}")
        except ValueError as error:
            raise AgentFailed(f"{self.name}'s database refused lines: {error}") from error
