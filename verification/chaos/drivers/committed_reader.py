"""A plain consumer of committed data, without a group: from each partition's start, as librdkafka reads.

The job has ``name``, ``bootstrap``, ``topics`` (partitions by name) and ``final``: whether to end where all is read,
instead of with standard input.
"""

from collections import defaultdict
from time import monotonic_ns
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from verification.chaos.drivers import operations

_AT_A_TIME: Final = 500
_WAIT_S: Final = 0.3


def main() -> None:
    """Read and take down each poll."""
    job = operations.read_job()
    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "client.id": job["name"],
            "group.id": job["name"],
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "socket.timeout.ms": 6000,
            "fetch.wait.max.ms": 300,
            "fetch.error.backoff.ms": 200,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 3,
        }
    )
    places = [(topic, partition) for topic, count in job["topics"].items() for partition in range(count)]
    consumer.assign([TopicPartition(*place, 0) for place in places])
    ended: set[tuple[str, int]] = set()
    while len(ended) < len(places) if job["final"] else not operations.ended(0):
        _poll(consumer, job, ended)
    consumer.close()


def _poll(consumer: Consumer, job: dict[str, Any], ended: set[tuple[str, int]]) -> None:
    """Take down what comes; ``ended`` has the partitions that have been read to their end."""
    invoke = monotonic_ns()
    found: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for message in consumer.consume(_AT_A_TIME, _WAIT_S):
        error, place = message.error(), (str(message.topic()), message.partition() or 0)
        if error is None:
            found[place].append((message.offset() or 0, (message.value() or b"").decode("utf-8", "replace")))
            ended.discard(place)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(place)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            operations.unexpected(f"{job['name']}: {error.str()}")
    if found:
        polls = [[*place, records] for place, records in found.items()]
        fields = {"process": job["name"], "kind": "poll", "outcome": "ok", "invoke": invoke}
        operations.write({**fields, "complete": monotonic_ns(), "polls": polls, "final": job["final"]})


if __name__ == "__main__":
    main()
