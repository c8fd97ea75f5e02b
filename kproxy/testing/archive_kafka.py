"""Makes the archive of Kafka's classes, if it is not there: ``python -m kproxy.testing.archive_kafka``."""

import sys
from pathlib import Path
from typing import Final

from kproxy.testing.cache import filled_once
from kproxy.testing.class_archive import archive_of, writing
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import DEFAULT_JVM_OPTIONS, DEFAULT_VERSION, RealKafka
from kproxy.testing.maven import find_java
from kproxy.testing.tools import Unavailable

_END_SECONDS: Final = 120.0


def archive_kafka() -> Path:
    """Returns the archive, which a broker writes at its end if it is missing. Unavailable if none can be made."""
    archive = archive_of(f"kafka-{DEFAULT_VERSION}", find_java())
    filled_once(archive.parent, lambda directory: _write(directory / archive.name))
    return archive


def _write(archive: Path) -> None:
    with RealKafka(jvm_options=(*DEFAULT_JVM_OPTIONS, *writing(archive))) as kafka:
        with ClusterClient(kafka.bootstrap) as client:
            client.create_topic("any")
        kafka.terminate(0, _END_SECONDS)
        if not archive.exists():
            raise Unavailable(f"the broker wrote no archive of its classes:\n{kafka.log_tail(0)}")


if __name__ == "__main__":
    try:
        archive_kafka()
    except Unavailable as error:
        sys.exit(f"no archive of Kafka's classes, so brokers start more slowly: {error}")
