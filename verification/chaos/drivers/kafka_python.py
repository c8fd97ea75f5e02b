"""kafka-python 1.4.7 told that its brokers are of 0.10: Produce v2 with message sets of magic 1, and retries."""

import logging
import sys
from importlib import import_module
from typing import Any

from verification.chaos.drivers import operations


def main() -> None:
    """Send until standard input ends, then wait for what is open."""
    logging.basicConfig(level=logging.CRITICAL)
    use_installed_six()
    job = operations.read_job()
    producer = import_module("kafka").KafkaProducer(
        bootstrap_servers=job["bootstrap"],
        client_id=job["name"],
        api_version=(0, 10),
        acks="all",
        retries=1_000_000,
        retry_backoff_ms=100,
        request_timeout_ms=30_000,
        max_block_ms=60_000,
        linger_ms=20,
        metadata_max_age_ms=5000,
        compression_type=job.get("codec"),
        max_in_flight_requests_per_connection=job["in_flight"],
    )
    for topic, partition, value, timestamp in operations.records(job):
        _send(producer, operations.settler(job, topic, partition, value), topic, partition, value, timestamp)
    producer.flush(90)
    producer.close(5)


def _send(producer: Any, settle: operations.Settle, topic: str, partition: int, value: str, timestamp: int) -> None:
    try:
        future = producer.send(topic, value.encode(), partition=partition, timestamp_ms=timestamp)
    except import_module("kafka.errors").KafkaError as error:
        settle(None, type(error).__name__)
        return
    future.add_callback(lambda found: settle(found.offset, ""))
    future.add_errback(lambda error: settle(None, type(error).__name__))


def use_installed_six() -> None:
    """Python 3.12 cannot import the copy of six inside kafka-python: put today's six in its place."""
    import_module("six.moves.urllib.parse")
    six = sys.modules["six"]
    for name, module in list(sys.modules.items()):
        if name == "six" or name.startswith("six."):
            sys.modules["kafka.vendor." + name] = module
    for name in ("queue", "range", "urllib"):
        getattr(sys.modules["six.moves"], name)
    sys.modules["kafka.vendor.six"] = six
    sys.modules["kafka.vendor.six.moves"] = sys.modules["six.moves"]


if __name__ == "__main__":
    main()
