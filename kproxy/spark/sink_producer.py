"""The producer of one task attempt: librdkafka, set so that no record is sent twice, within bounded memory."""

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError as Failure
from confluent_kafka import KafkaException, Message, Producer

from kproxy.spark.key_stores import key, trusted
from kproxy.spark.secured_connection import token
from kproxy.spark.security_options import Sasl, Security
from kproxy.spark.sink_options import SinkOptions
from kproxy.spark.sink_rows import Row
from kproxy.spark.spark_errors import KafkaError, OptionError

#: Bytes of records in flight that a worker holds, besides a batch of Spark's.
_QUEUE_KBYTES: Final = 64 << 10
_QUEUE_MESSAGES: Final = 200_000
#: The longest that librdkafka knows.
_LONGEST_ANSWER_MS: Final = 300_000
_LOOK_SECONDS: Final = 0.2
#: Nothing tells that there is room again, for good news is not told.
_ROOM_SECONDS: Final = 0.02

#: What to do about errors of which librdkafka's own text says nothing.
_ADVICE: Final[Mapping[int, str]] = MappingProxyType(
    {
        Failure.TOPIC_AUTHORIZATION_FAILED: "give the principal of this query Write on the topic",
        Failure.MSG_SIZE_TOO_LARGE: "raise kafka.max.request.size of the sink and max.message.bytes of the topic",
        Failure.INVALID_TXN_STATE: "the task's part of the transaction has ended, as after a restart of kproxy or "
        "after transaction.timeout.ms: nothing of it is visible, and the next run of the task writes all of it",
        Failure.POLICY_VIOLATION: "kproxy's own transactions refuse compacted topics; start kproxy with "
        "transactions.home: broker, or with a rule TRANSACTIONAL_ID=broker",
    }
)

#: Where the user says nothing.
_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        # Keys go to the partitions to which Spark's own sink, and any Java producer, sends them.
        "partitioner": "murmur2_random",
        # Throughput is what counts: a batch is not seen before all of Spark's is committed.
        "linger.ms": 50,
        "batch.num.messages": 100_000,
    }
)
_FIXED: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "acks": "all",
        # Data of a member goes out under a producer id of kproxy's, so librdkafka's own sequences would not tell a
        # repetition from new data. So nothing is ever repeated: an error fails the record, and with it the attempt,
        # whose member is aborted. What a broker does not take at once kproxy repeats on its own side.
        "enable.idempotence": False,
        "message.send.max.retries": 0,
        # What is refused fails the attempt, so order needs no single request in flight; this bounds kproxy's memory.
        "max.in.flight": 5,
        # Good news is not told: a call for each record would cost more than all the rest.
        "delivery.report.only.error": True,
        "queue.buffering.max.kbytes": _QUEUE_KBYTES,
        "queue.buffering.max.messages": _QUEUE_MESSAGES,
    }
)


def settings(options: SinkOptions, client_id: str) -> dict[str, Any]:
    """For librdkafka, of a producer that is known by ``client_id``."""
    return {
        **_DEFAULTS,
        **options.producer,
        **_FIXED,
        **_secured(options.security),
        "bootstrap.servers": options.bootstrap,
        "client.id": client_id,
        # While a broker is unavailable kproxy keeps the request: a missing response is no reason to give up before the
        # transaction's own time-out.
        "message.timeout.ms": options.timeout_ms,
        "socket.timeout.ms": min(options.timeout_ms, _LONGEST_ANSWER_MS),
        "request.timeout.ms": options.timeout_ms,
    }


def _secured(security: Security) -> dict[str, Any]:
    """TLS and SASL for librdkafka. OptionError if a store can't be read."""
    found: dict[str, Any] = {"security.protocol": security.protocol}
    if security.is_tls:
        found["ssl.endpoint.identification.algorithm"] = "https" if security.checks_name else "none"
        if security.trust is not None:
            found["ssl.ca.pem"] = trusted(security.trust)
        if (own := key(security)) is not None:
            found |= {"ssl.certificate.pem": str(own.pem), "ssl.key.pem": str(own.pem)}
            if own.password is not None:
                found["ssl.key.password"] = str(own.password)
    sasl = security.sasl
    if sasl is not None:
        found["sasl.mechanism"] = sasl.mechanism
        if sasl.mechanism == "OAUTHBEARER":
            found["oauth_cb"] = lambda _: _token(sasl)
        else:
            found |= {f"sasl.{name}": str(sasl.options[name]) for name in ("username", "password")}
    return found


def _token(sasl: Sasl) -> tuple[str, float, str, dict[str, str]]:
    """A token as confluent_kafka takes it: with the time at which it ends, in seconds, its principal and extensions."""
    given = token(sasl)
    return given.token, time.time() + given.seconds, "", given.extensions


def check(options: SinkOptions) -> None:
    """OptionError if librdkafka does not know a setting, or its value."""
    made = {name: value for name, value in settings(options, "check").items() if name != "bootstrap.servers"}
    try:
        Producer({**made, "log_level": 0})  # it would warn that it has nowhere to connect to
    except KafkaException as error:
        raise OptionError(f"kafka.*: {error.args[0].str()} (names and values are librdkafka's)") from None


class _FirstFailure:
    """What failed first. An object of its own: with the sender in a circle the producer's memory would outlive it."""

    def __init__(self) -> None:
        self.found: tuple[str, Failure] | None = None

    def __call__(self, error: Failure | None, message: Message) -> None:
        if error is not None and self.found is None:
            self.found = f"{message.topic()}-{message.partition()}", error


class Sender:
    """Writes rows; the first that fails, fails all. Use it in one thread, and close it."""

    def __init__(self, options: SinkOptions, client_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Connects by and by. ``clock`` is in seconds."""
        self._first = _FirstFailure()
        self._timeout = options.timeout_ms / 1000
        self._clock = clock
        self._producer = Producer({**settings(options, client_id), "on_delivery": self._first})

    def send(self, rows: Iterable[Row]) -> int:
        """Sends rows, and waits while too many are in flight; returns how many. KafkaError if one failed."""
        produce, count = self._producer.produce, 0
        for row in rows:
            try:
                produce(*row)
            except BufferError:
                self._make_room(row)
            except KafkaException as error:
                raise _refused(row[0], error.args[0]) from None
            count += 1
        self._producer.poll(0)
        self._check()
        return count

    def flush(self) -> None:
        """Until every row is acknowledged; KafkaError if one failed."""
        deadline = self._clock() + self._timeout
        while self._producer.flush(_LOOK_SECONDS):
            self._check()
            if self._clock() > deadline:
                raise KafkaError(f"records are not acknowledged within the {self._timeout:.0f} s of the transaction")
        self._check()

    def close(self) -> None:
        """Drops what is left, and the connections; harmless when called again."""
        self._producer.purge()
        self._producer.poll(0)

    def _make_room(self, row: Row) -> None:
        while True:
            self._producer.poll(_ROOM_SECONDS)
            self._check()
            try:
                self._producer.produce(*row)
            except BufferError:
                continue
            return

    def _check(self) -> None:
        if self._first.found is not None:
            raise _refused(*self._first.found)


def _refused(place: str, error: Failure) -> KafkaError:
    return KafkaError(f"a record for {place} was not written: {error.name()}: {_ADVICE.get(error.code(), error.str())}")
