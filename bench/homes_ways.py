"""Ways to one transaction, of one record in each partition: KIP-98's, by hand, and by one Produce request."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import KafkaError, Message, Producer

from bench import payloads
from bench.cases import WINDOW
from bench.load import Address, Connection, LoadError
from kproxy.budget import unbounded
from kproxy.client import ControlClient
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import build_batch
from kproxy.codec.header import encode_request
from kproxy.codec.records import Record

SECONDS: Final = 60.0
"""The most that one transaction may take."""
_CORRELATION_BYTES: Final = 4
#: As in the cases of plain records: so large, and so many in flight, which is all that transactions allow, too.
_BATCHES: Final = {
    "batch.size": payloads.BATCH_BYTES,
    "max.in.flight.requests.per.connection": WINDOW,
    "acks": "all",
    "log_level": 0,
}
#: librdkafka as it was for brokers of 0.10: message sets of magic 1, nothing of producer ids.
_OLD: Final = {"api.version.request": False, "broker.version.fallback": "0.10.0.0"}


class Write(Protocol):
    """Takes one record to a partition; it is written when the transaction is ended, if not before."""

    def __call__(self, value: bytes, partition: int) -> None: ...


class Way(Protocol):
    """How a client has a transaction."""

    def transact(self, write: Callable[[Write], None]) -> None:
        """Writes and commits. LoadError, KafkaException, ControlError, TimeoutError."""
        ...


class Transactional:
    """librdkafka's own transactions: the first protocol of KIP-98."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, *, linger_ms: int = 0) -> None:
        """Takes the id."""
        self._topic = topic
        options = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": linger_ms}
        self._producer = Producer({**_BATCHES, **options})
        self._producer.init_transactions(SECONDS)

    def transact(self, write: Callable[[Write], None]) -> None:
        """As ``Way``."""
        self._producer.begin_transaction()
        write(lambda value, partition: _produce(self._producer, self._topic, value, partition))
        self._producer.commit_transaction(SECONDS)


class Plain:
    """No transactions at all: librdkafka of today, or as it was for 0.10."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, *, old: bool, linger_ms: int = 0) -> None:
        """Connects with the first record."""
        self._topic = topic
        options = {"bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": linger_ms}
        self._producer = Producer({**_BATCHES, **options, **(_OLD if old else {})})
        self._errors: list[KafkaError] = []

    def transact(self, write: Callable[[Write], None]) -> None:
        """As ``Way``, but for the transaction: all has been acknowledged at the end."""
        write(lambda value, partition: _produce(self._producer, self._topic, value, partition, self._delivered))
        if self._producer.flush(SECONDS) or self._errors:
            raise LoadError(f"records were not written: {self._errors[:1]}")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)


class ByHand(Plain):
    """A producer as it was for 0.10, in a transaction that a script begins and commits by the control API."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, socket: Path, *, linger_ms: int = 0) -> None:
        """``socket``: of the control API."""
        super().__init__(bootstrap, topic, client_id, old=True, linger_ms=linger_ms)
        self._control = ControlClient(socket)
        self._client_id = client_id

    def transact(self, write: Callable[[Write], None]) -> None:
        """As ``Way``."""
        begun = self._control.begin(client_id=self._client_id)
        super().transact(write)
        self._control.commit(begun.transactional_id, owner=begun.owner)


class PerRequest:
    """A producer of 0.10 that sends one Produce request with all partitions, which is a transaction by itself."""

    def __init__(self, connection: Connection, topic: str, client_id: str) -> None:
        """``connection`` to any port of kproxy's."""
        self._connection = connection
        self._topic = topic
        self._client_id = client_id

    @classmethod
    @contextlib.contextmanager
    def open(cls, address: Address, topic: str, client_id: str) -> Iterator["PerRequest"]:
        """Connected while the block lasts."""
        with Connection(address) as connection:
            yield cls(connection, topic, client_id)

    def transact(self, write: Callable[[Write], None]) -> None:
        """As ``Way``."""
        now_ms = int(time.time() * 1000)
        parts: list[ProduceRequestPartitionProduceData] = []

        def add(value: bytes, partition: int) -> None:
            data = payloads.message_set(bytes(build_batch([Record(0, now_ms, None, value, ())])), 1)
            parts.append(ProduceRequestPartitionProduceData(index=partition, records=data))

        write(add)
        topic = ProduceRequestTopicProduceData(name=self._topic, partition_data=parts)
        request = ProduceRequest(acks=-1, timeout_ms=int(SECONDS * 1000), topic_data=[topic])
        answer = self._connection.ask(encode_request(request, payloads.OLD_PRODUCE, 0, self._client_id))
        told = ProduceResponse.decode(bytes(answer), payloads.OLD_PRODUCE, unbounded(), _CORRELATION_BYTES)
        errors = {row.error_code for topic in told.responses for row in topic.partition_responses} - {0}
        if errors:
            raise LoadError(f"Produce: errors {sorted(errors)}")


def one_each(partitions: int) -> tuple[bytes, Callable[[Write], None]]:
    """A name that no transaction had, and what writes it to each partition."""
    name = uuid.uuid4().bytes

    def write(put: Write) -> None:
        for partition in range(partitions):
            put(name, partition)

    return name, write


def many(count: int, partitions: int, value: bytes) -> Callable[[Write], None]:
    """What writes so many records to the partitions in turn."""

    def write(put: Write) -> None:
        for number in range(count):
            put(value, number % partitions)

    return write


def _produce(
    producer: Producer,
    topic: str,
    value: bytes,
    partition: int,
    delivered: Callable[[KafkaError | None, Message], None] | None = None,
) -> None:
    producer.produce(topic, value, partition=partition, on_delivery=delivered)
