"""librdkafka with retries and no idempotence: as it is, with as many requests in flight as it likes; or made to speak
the protocol of Kafka 0.9 (Produce v1, message sets of magic 0) with one request in flight.
"""

from typing import Any, Final

import confluent_kafka

from verification.chaos.drivers import operations

_OLD: Final[dict[str, Any]] = {
    "api.version.request": False,
    "broker.version.fallback": "0.9.0.1",
}


class Offsets:
    """Which offsets were really told.

    librdkafka counts on from a response's first offset also where that is -1 (not told): -1, 0, 1, ...
    """

    def __init__(self) -> None:
        self._made_up: dict[tuple[str, int], int] = {}

    def told(self, place: tuple[str, int], offset: int | None) -> int | None:
        """Return the offset of the next record that was delivered (None: -1), None if librdkafka made it up."""
        made_up = self._made_up.pop(place, None)
        if offset is not None and offset != made_up:
            return offset
        self._made_up[place] = 0 if offset is None else offset + 1
        return None


def main() -> None:
    """Send until standard input ends, then wait for what is open."""
    job = operations.read_job()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "client.id": job["name"],
            "enable.idempotence": False,
            "acks": "all",
            "linger.ms": 20,
            "compression.type": job.get("codec", "none"),
            "max.in.flight.requests.per.connection": job["in_flight"],
            **(_OLD if job.get("old") else {}),
            "request.timeout.ms": 4000,
            "socket.timeout.ms": 6000,
            "message.timeout.ms": 60_000,
            "retry.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 5000,
            "log_level": 3,
        }
    )
    offsets = Offsets()
    for topic, partition, value, _ in operations.records(job):
        settle = operations.settler(job, topic, partition, value)

        def done(error: Any, message: Any, settle: operations.Settle = settle) -> None:
            if error:
                settle(None, error.name())
            else:
                settle(offsets.told((message.topic(), message.partition()), message.offset()), "")

        producer.produce(topic, value.encode(), partition=partition, on_delivery=done)
        producer.poll(0)
    producer.flush(90)


if __name__ == "__main__":
    main()
