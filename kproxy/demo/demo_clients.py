"""The old clients: librdkafka made to speak the protocol of Kafka 0.9.0.1.

With `api.version.request=false` it asks no broker what it can do and sends what 0.9 knew: Produce v1 and Fetch v1 with
records of magic 0. Kafka 4 closes the connection on these (KIP-896, KIP-724).
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import confluent_kafka

from kproxy.demo.failure import DemoFailed

PROTOCOL: Final = "0.9.0.1"
VALUE_BYTES: Final = 100
_NUMBER_BYTES: Final = 10
_POLL_SECONDS: Final = 0.2
_STALL_SECONDS: Final = 30.0
_FILLER: Final = b"." * (VALUE_BYTES - _NUMBER_BYTES)


@dataclass
class Refusal:
    """What a client saw that was turned away: its delivery error, and the line that it logged."""

    error: str = ""
    log: str = ""


@dataclass
class Delivery:
    """How the sends ended: record numbers acknowledged, and error texts by record number."""

    acknowledged: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)


def record_value(number: int) -> bytes:
    """The value of record `number`: the number, then filler, 100 bytes in all."""
    return b"%0*d%b" % (_NUMBER_BYTES, number, _FILLER)


def record_number(value: bytes) -> int:
    """The number in a value made by `record_value`; ValueError if it is not one."""
    return int(value[:_NUMBER_BYTES])


def attempt(bootstrap: str, topic: str, seconds: float) -> Refusal | None:
    """Send one record with the old producer and give up after `seconds`.

    Returns:
        None if it was acknowledged, else what the client reported.
    """
    refusal = Refusal()
    delivered: list[str] = []
    producer = confluent_kafka.Producer(
        _settings(bootstrap) | {"message.timeout.ms": int(seconds * 1000)}, logger=_line_keeper(refusal)
    )
    producer.produce(topic, b"refused?", on_delivery=lambda error, _: delivered.append(error.str() if error else ""))
    producer.flush(seconds + 2)
    refusal.error = delivered[0] if delivered else "no answer"
    return refusal if refusal.error else None


def send(bootstrap: str, topic: str, count: int, progress: Callable[[int], None]) -> Delivery:
    """Send records 0 to `count - 1` with the old producer and wait for every outcome.

    Raises:
        DemoFailed: no outcome came for 30 s.
    """
    delivery = Delivery()
    producer = confluent_kafka.Producer(
        _settings(bootstrap) | {"acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 20_000},
        logger=_silent(),
    )
    for number in range(count):
        _enqueue(producer, topic, number, delivery)
        if number % 500 == 0:
            progress(len(delivery.acknowledged))
    last, since = -1, time.monotonic()
    while producer.flush(_POLL_SECONDS):
        settled = len(delivery.acknowledged) + len(delivery.failed)
        progress(len(delivery.acknowledged))
        if settled != last:
            last, since = settled, time.monotonic()
        elif time.monotonic() - since > _STALL_SECONDS:
            raise DemoFailed(f"the producer makes no progress at {settled:,} of {count:,} records")
    progress(len(delivery.acknowledged))
    return delivery


def _enqueue(producer: Any, topic: str, number: int, delivery: Delivery) -> None:
    def settled(error: Any, _message: Any) -> None:
        if error is None:
            delivery.acknowledged.add(number)
        else:
            delivery.failed[number] = error.str()

    while True:
        try:
            producer.produce(topic, record_value(number), on_delivery=settled)
        except BufferError:
            producer.poll(_POLL_SECONDS)
        else:
            producer.poll(0)
            return


def receive(bootstrap: str, topic: str, group: str, expected: int) -> Iterator[int]:
    """Consume with the old consumer, in a group, from the beginning; yield record numbers as they come.

    Ends when `expected` records have come or nothing has for 30 s.

    Raises:
        DemoFailed: the client reports an error.
    """
    consumer = confluent_kafka.Consumer(
        _settings(bootstrap) | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": True},
        logger=_silent(),
    )
    try:
        consumer.subscribe([topic])
        came, since = 0, time.monotonic()
        while came < expected and time.monotonic() - since < _STALL_SECONDS:
            for message in consumer.consume(1000, _POLL_SECONDS):
                error, value = message.error(), message.value()
                if error is not None or value is None:
                    raise DemoFailed(f"the consumer reports: {error.str() if error else 'a record without value'}")
                came, since = came + 1, time.monotonic()
                yield record_number(value)
    finally:
        consumer.close()


def _settings(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "log-shipper-of-2015",
        "api.version.request": False,
        "broker.version.fallback": PROTOCOL,
        "error_cb": lambda _error: None,
    }


def _silent() -> logging.Logger:
    logger = logging.Logger("kproxy.demo.client")
    logger.addHandler(logging.NullHandler())
    return logger


def _line_keeper(refusal: Refusal) -> logging.Logger:
    """A logger that keeps the last line about a connection that was closed."""

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "isconnected" in (line := record.getMessage()):
                refusal.log = line

    logger = logging.Logger("kproxy.demo.client")
    logger.addHandler(Keeper())
    return logger
