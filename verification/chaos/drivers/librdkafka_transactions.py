"""librdkafka's transactional producer (the first protocol of KIP-98): records and a group's offset, or nothing at all.

Each transaction moves the offset of a group of its own by one. If the outcome of a commit is unknown, the producer is
replaced by a new one, as an application would do, and the group's offset shows the outcome.
"""

import faulthandler
import random
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from verification.chaos.drivers import operations

_CALL_S: Final = 20.0
_PATIENCE_S: Final = 240.0
_HANGS_S: Final = 60.0
"""After this time a call never returns: then the process ends and says where it was."""
_PAUSE_S: Final = 0.1
_ABORTS: Final = 0.2
_SETTINGS: Final = {"socket.timeout.ms": 6000, "reconnect.backoff.max.ms": 1000, "log_level": 3}


class _Lost(Exception):
    """The producer can't continue: a new one has to be made."""


class Copier:
    """One transactional id and one group; ``job`` has ``name``, ``bootstrap``, ``places`` and ``transactional_id``."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._chance = random.Random(job["name"])
        self._number = 0
        self._position = 0
        self._open: operations.Transaction | None = None
        """The transaction with an unknown outcome; it moves the group to the offset after ``_position``."""
        settings = {"bootstrap.servers": job["bootstrap"], "group.id": job["name"], "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, **_SETTINGS, "client.id": job["name"]})

    def run(self) -> None:
        """One producer after the other, until standard input ends."""
        while not operations.ended(0):
            try:
                self._live(self._producer())
            except _Lost as error:
                operations.tell(self._job["name"], str(error))
        if self._open is not None:
            self._open.settle("info", "nobody asked the group")

    def _producer(self) -> Producer:
        job = self._job
        settings = {"bootstrap.servers": job["bootstrap"], "transactional.id": job["transactional_id"]}
        more = {"client.id": job["name"], "transaction.timeout.ms": 15_000, "message.timeout.ms": 14_000}
        producer = Producer({**settings, **more, **_SETTINGS, "request.timeout.ms": 4000, "linger.ms": 5})
        _until_done(lambda: producer.init_transactions(_CALL_S))
        return producer

    def _live(self, producer: Producer) -> None:
        self._look()
        while not operations.ended(_PAUSE_S):
            self._transaction(producer)

    def _look(self) -> None:
        """Find the outcome of a transaction by the group's offset."""
        [found] = _until_done(lambda: self._consumer.committed([self._source()], _CALL_S))
        at = max(0, found.offset)
        possible = {self._position} if self._open is None else {self._position, self._position + 1}
        if at not in possible:
            operations.unexpected(f"{self._job['name']}: offset {at} instead of {sorted(possible)}")
        if self._open is not None:
            self._open.settle("ok" if at == self._position + 1 else "fail", "told by the group's offset")
            self._open = None
        self._position = at

    def _source(self) -> TopicPartition:
        topic, partition = self._job["places"][0]
        return TopicPartition(topic, partition, self._position + 1)

    def _transaction(self, producer: Producer) -> None:
        transaction = operations.Transaction(self._job["name"])
        commits = self._chance.random() >= _ABORTS
        try:
            _call(producer.begin_transaction)
            for topic, partition in self._chance.sample(self._job["places"], 2):
                for _ in range(self._chance.randint(1, 3)):
                    self._number += 1
                    value = f"{self._job['name']}:{self._number}"
                    sent = transaction.add(topic, partition, value)
                    producer.produce(topic, value.encode(), partition=partition, on_delivery=_delivered(sent))
            metadata = self._consumer.consumer_group_metadata()
            _until_done(lambda: producer.send_offsets_to_transaction([self._source()], metadata, _CALL_S))
            if commits:
                transaction.asked = time.monotonic_ns()
                _until_done(lambda: producer.commit_transaction(_CALL_S))
            else:
                _until_done(lambda: producer.abort_transaction(_CALL_S))
        except _Abortable as error:
            self._abort(producer, transaction, str(error))
        except _Lost as error:
            self._leave(transaction, str(error))
            raise
        else:
            self._position += commits
            transaction.settle("ok" if commits else "fail", "")

    def _abort(self, producer: Producer, transaction: operations.Transaction, why: str) -> None:
        try:
            _until_done(lambda: producer.abort_transaction(_CALL_S))
        except (_Abortable, _Lost) as error:
            self._leave(transaction, f"{why}; {error}")
            raise _Lost(str(error)) from error
        transaction.settle("fail", why)

    def _leave(self, transaction: operations.Transaction, why: str) -> None:
        if transaction.asked is None:
            transaction.settle("fail", why)
        else:
            self._open = transaction


class _Abortable(Exception):
    """The transaction can't be committed."""


def _call(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        if error.txn_requires_abort():
            raise _Abortable(str(error)) from failure
        if error.retriable():
            raise
        raise _Lost(str(error)) from failure


def _until_done(function: Callable[[], Any]) -> Any:
    """Call again what may be called again; _Abortable and _Lost as the client has it."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        faulthandler.dump_traceback_later(_HANGS_S, exit=True)
        try:
            return _call(function)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise _Lost(f"no success in {_PATIENCE_S:.0f} s: {error}") from error
            time.sleep(0.1)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _delivered(sent: list[Any]) -> Callable[[Any, Any], None]:
    def done(error: Any, message: Any) -> None:
        if error is None and message.offset() is not None and message.offset() >= 0:
            sent[2] = message.offset()

    return done


if __name__ == "__main__":
    Copier(operations.read_job()).run()
