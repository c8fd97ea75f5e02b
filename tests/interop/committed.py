"""A consumer that knows nothing of kproxy, and what it has read of committed records so far."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.patience import eventually


class CommittedReader:
    """librdkafka with read_committed, without a group, from the beginning of the topics; use it as a context manager.

    A record is (key, value).
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int = 1) -> None:
        options = {"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "isolation.level": "read_committed"}
        self._consumer = Consumer({**options, "log_level": 0, "auto.offset.reset": "error"})
        places = [(topic, partition) for topic in topics for partition in range(partitions)]
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
        self._values: dict[tuple[str, int], list[tuple[str, str]]] = {place: [] for place in places}

    def count(self, topic: str) -> int:
        """How many records of a topic have come."""
        return len(self.rows(topic))

    def rows(self, topic: str) -> list[tuple[str, str]]:
        """The records of a topic, one partition after another."""
        return [row for (name, _), rows in self._values.items() if name == topic for row in rows]

    def until(self, holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        """Read until `holds`; AssertionError with what `otherwise` says if it does not in two minutes."""
        eventually(holds, lambda: self.read(0.1), otherwise)

    def read(self, seconds: float) -> None:
        """Take what comes within a time."""
        # A broker or kproxy that is away for a moment is an error of librdkafka, which continues by itself.
        with suppress(KafkaException):
            for message in self._consumer.consume(500, seconds):
                place = message.topic() or "", message.partition() or 0
                if message.error() is None:
                    self._values[place].append(((message.key() or b"").decode(), (message.value() or b"").decode()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()
