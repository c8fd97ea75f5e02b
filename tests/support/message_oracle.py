"""Kafka's own message classes, of several releases, in one JVM."""

from pathlib import Path

from tests.support.java import JavaLines, jars

SOURCE = Path(__file__).resolve().parent.parent / "codec" / "java" / "MessageOracle.java"
# Kafka's JSON converters need it, but kafka-clients does not bring it along.
JACKSON = "com.fasterxml.jackson.core:jackson-databind:2.21.2"


def message_oracle(*releases: str) -> JavaLines:
    """A running oracle; the source file says which lines it takes."""
    homes = [f"{release}={jars(f'org.apache.kafka:kafka-clients:{release}')}" for release in releases]
    return JavaLines(SOURCE, [jars(JACKSON)], homes)
