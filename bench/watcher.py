"""A read_committed reader, and when it had the whole of each transaction."""

import threading
import time
import uuid
from typing import Final

from confluent_kafka import Consumer, TopicPartition

_POLL_SECONDS: Final = 0.05
_MOST_AT_ONCE: Final = 500


class Watcher:
    """Counts what a read_committed consumer has of each transaction, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Reads from the beginning, so that nothing is missed while it starts.

        Each record's value is the name of its transaction, which has one in each partition.
        """
        options = {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self._consumer = Consumer(options)
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        self._partitions = partitions
        self._seen: dict[bytes, int] = {}
        self._whole: dict[bytes, float] = {}
        self._changed = threading.Condition()
        self._stop = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stop:
            # to wait for many would wait for the whole time-out, and every figure be a multiple of it
            first = self._consumer.poll(_POLL_SECONDS)
            for message in [first, *self._consumer.consume(_MOST_AT_ONCE, 0)] if first is not None else []:
                if message.error() is None:
                    self._count(message.value() or b"")
        self._consumer.close()

    def _count(self, name: bytes) -> None:
        self._seen[name] = self._seen.get(name, 0) + 1
        if self._seen[name] == self._partitions:
            with self._changed:
                self._whole[name] = time.perf_counter()
                self._changed.notify_all()

    def visible_at(self, name: bytes, seconds: float) -> float:
        """When all records of a transaction had come; TimeoutError if they do not within ``seconds``."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._whole, seconds):
                raise TimeoutError
            return self._whole[name]

    def close(self) -> None:
        """Ends the thread."""
        self._stop = True
        self._thread.join()
