"""kafka-python 1.4.7 as a consumer with the protocol of 0.11: its application is handed control records, too.

It reads without regard for transactions and assigns its partitions itself. The job has ``name``, ``bootstrap``,
``topics`` (partitions by name) and ``uncommitted``: whether any of them holds transactions.
"""

import logging
from importlib import import_module
from time import monotonic_ns

from verification.chaos.drivers import operations
from verification.chaos.drivers.kafka_python import use_installed_six

_WAIT_MS = 300


def main() -> None:
    """Read from the start until standard input ends, and take down each poll."""
    logging.basicConfig(level=logging.CRITICAL)
    use_installed_six()
    job = operations.read_job()
    kafka = import_module("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        client_id=job["name"],
        group_id=None,
        api_version=(0, 11, 0),
        auto_offset_reset="none",
        enable_auto_commit=False,
        fetch_max_wait_ms=300,
        request_timeout_ms=8_000,
        metadata_max_age_ms=5_000,
        retry_backoff_ms=200,
    )
    places = [kafka.TopicPartition(topic, part) for topic, count in job["topics"].items() for part in range(count)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    while not operations.ended(0):
        invoke = monotonic_ns()
        polls = [
            [place.topic, place.partition, [[found.offset, _text(found.value)] for found in records]]
            for place, records in consumer.poll(_WAIT_MS).items()
        ]
        if polls:
            fields = {"process": job["name"], "kind": "poll", "outcome": "ok", "invoke": invoke}
            operations.write({**fields, "complete": monotonic_ns(), "polls": polls, "uncommitted": job["uncommitted"]})
    consumer.close()


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


if __name__ == "__main__":
    main()
