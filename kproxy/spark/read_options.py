"""The options of the source, as Spark's own Kafka source names them: read once, told in one line if they are wrong."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kproxy.proxy.routing import Address
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicPartition
from kproxy.spark.option_values import boolean, choice, number, offsets_json, servers, topics_json
from kproxy.spark.spark_errors import OptionError

__all__ = ["Bound", "ReadOptions", "Subscription", "read_options"]

_SERVERS: Final = "kafka.bootstrap.servers"
_BY: Final = ("subscribe", "subscribePattern", "assign")
_START: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_END: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_ISOLATION: Final = ("isolation.level", "kafka.isolation.level")
_NAMES: Final = (
    _SERVERS,
    *_BY,
    *_START,
    *_END,
    *_ISOLATION,
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "records.as",
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafkaConsumer.pollTimeoutMs",
    "maxDecompressedBytes",
)


class Subscription(NamedTuple):
    """Which partitions; one of the three is given."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] = frozenset()


class Bound(NamedTuple):
    """Where to begin or to end: the same for all partitions, or one for each."""

    #: The options that said it, for errors.
    name: str
    #: ``EARLIEST``, ``LATEST``, or a time in ms; None where each partition has its own.
    everywhere: int | None = None
    #: Offsets or times, ``EARLIEST`` and ``LATEST`` among them.
    by_partition: Mapping[TopicPartition, int] | None = None
    #: Whether the numbers are times: the first record that is not older.
    is_time: bool = False


class ReadOptions(NamedTuple):
    """All options of one source."""

    bootstrap: tuple[Address, ...]
    subscription: Subscription
    #: None: earliest for a table, latest for a stream.
    start: Bound | None
    #: None: latest. Not for streams.
    end: Bound | None
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    with_headers: bool
    min_partitions: int
    committed: bool
    as_batches: bool
    client_id: str
    request_timeout_s: float
    patience_s: float
    max_decompressed_bytes: int

    def check_table(self) -> None:
        """Raises OptionError if these are options of a stream."""
        if self.max_offsets_per_trigger is not None:
            raise OptionError("maxOffsetsPerTrigger is for readStream; a table is read from its start to its end")
        _check_bound(self.start, LATEST, "begin at the latest offset; valid: earliest, offsets of your own, a time")
        _check_bound(self.end, EARLIEST, "end at the earliest offset; valid: latest, offsets of your own, a time")

    def check_stream(self) -> None:
        """Raises OptionError if these are options of a table."""
        if self.end is not None:
            raise OptionError(f"{self.end.name} is for read; a stream does not end")

    def open_cluster(self) -> KafkaCluster:
        """The cluster; to be closed."""
        return KafkaCluster(
            self.bootstrap,
            client_id=self.client_id,
            request_timeout_s=self.request_timeout_s,
            patience_s=self.patience_s,
        )


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options that Spark hands over, whose names may be in any case. Raises OptionError."""
    given = _known(options)
    as_batches = choice(given, "records.as", ("records", "batches"), "records") == "batches"
    if as_batches:
        for name in (*_ISOLATION, "includeHeaders"):
            if name in given:
                raise OptionError(f"{name} does not go with records.as=batches, which tells of all batches")
    return ReadOptions(
        bootstrap=_servers(given),
        subscription=_subscription(given),
        start=_bound(given, _START),
        end=_bound(given, _END),
        max_offsets_per_trigger=number(given, "maxOffsetsPerTrigger", None),
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        with_headers=boolean(given, "includeHeaders", default=False),
        min_partitions=number(given, "minPartitions", 1) or 1,
        committed=_is_committed(given),
        as_batches=as_batches,
        client_id=given.get("kafka.client.id", "kproxy-spark"),
        request_timeout_s=(number(given, "kafka.request.timeout.ms", 30_000) or 0) / 1000,
        patience_s=(number(given, "kafkaConsumer.pollTimeoutMs", 120_000) or 0) / 1000,
        max_decompressed_bytes=number(given, "maxDecompressedBytes", 128 << 20) or 0,
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options under the names that are documented."""
    names = {name.lower(): name for name in _NAMES}
    found = {}
    for name, value in options.items():
        if name.lower() not in names:
            raise OptionError(f"unknown option {name!r} of the source; valid: {', '.join(sorted(_NAMES))}")
        found[names[name.lower()]] = value
    return found


def _one_of(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    there = [name for name in names if name in given]
    if len(there) > 1:
        raise OptionError(f"{there[0]} and {there[1]} contradict each other; give one of {', '.join(names)}")
    return there[0] if there else None


def _servers(given: Mapping[str, str]) -> tuple[Address, ...]:
    found = servers(_SERVERS, given.get(_SERVERS, ""))
    if not found:
        raise OptionError(f"{_SERVERS} is missing; valid: host:port of kproxy or of brokers, several joined by commas")
    return found


def _subscription(given: Mapping[str, str]) -> Subscription:
    name = _one_of(given, _BY)
    if name is None:
        raise OptionError(f"nothing to read; give one of {', '.join(_BY)}")
    text = given[name]
    if name == "subscribe":
        topics = frozenset(filter(None, (topic.strip() for topic in text.split(","))))
        if not topics:
            raise OptionError("subscribe is empty; valid: topics, joined by commas")
        return Subscription(topics=topics)
    if name == "assign":
        return Subscription(partitions=topics_json(name, text))
    try:
        return Subscription(pattern=re.compile(text))
    except re.error as error:
        raise OptionError(f"subscribePattern: {text!r} is no regular expression: {error}") from error


def _bound(given: Mapping[str, str], names: tuple[str, ...]) -> Bound | None:
    by_offset, by_time, _ = names
    name = _one_of(given, names)
    if name is None:
        return None
    if name == by_time:
        return Bound(name, everywhere=number(given, name, None, least=0), is_time=True)
    if name == by_offset:
        word = given[name].strip().lower()
        if word in ("earliest", "latest"):
            return Bound(name, everywhere=EARLIEST if word == "earliest" else LATEST)
        return Bound(name, by_partition=offsets_json(name, given[name], least=EARLIEST))
    return Bound(name, by_partition=offsets_json(name, given[name], least=0), is_time=True)


def _check_bound(bound: Bound | None, forbidden: int, what: str) -> None:
    if bound is None or bound.is_time:
        return
    if bound.everywhere == forbidden or forbidden in (bound.by_partition or {}).values():
        raise OptionError(f"{bound.name}: a table can't {what}")


def _is_committed(given: Mapping[str, str]) -> bool:
    name = _one_of(given, _ISOLATION) or _ISOLATION[0]
    levels = ("read_committed", "read_uncommitted")
    return choice(given, name, levels, levels[0]) == levels[0]
