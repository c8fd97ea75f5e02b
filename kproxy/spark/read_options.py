"""The options of the source, as Spark's own Kafka source names them: read once; an error is one line."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kproxy.config.values import suggest
from kproxy.proxy.routing import Address
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicPartition
from kproxy.spark.option_table import NO_EFFECT, REFUSED, SOURCE
from kproxy.spark.option_values import boolean, choice, number, offsets_json, servers, topics_json
from kproxy.spark.security_options import NAMES as SECURITY
from kproxy.spark.security_options import PLAIN_TEXT, Security, security
from kproxy.spark.spark_errors import OptionError

__all__ = ["Bound", "ReadOptions", "Subscription", "read_options"]

_SERVERS: Final = "kafka.bootstrap.servers"
_BY: Final = ("subscribe", "subscribePattern", "assign")
_START: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_END: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_ISOLATION: Final = ("isolation.level", "kafka.isolation.level")
#: An unreachable cluster is reported by the driver within this time.
FIRST_PATIENCE_S: Final = 10.0
_NAMES: Final = (*SECURITY, *(name for option in (*SOURCE, *NO_EFFECT) for name in option.names))
_REASONS: Final = {name.lower(): option.text for option in REFUSED for name in option.names}
_FETCH_BYTES: Final = ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
_MOST_FETCH_BYTES: Final = 4 << 20
_TIME: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_TIME_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"


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
    security: Security = PLAIN_TEXT
    #: A micro-batch waits for so many offsets, at most ``max_trigger_delay_s``; None: for none.
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    max_records_per_partition: int | None = None
    #: Whether a starting time that no record is as young as is an error; else reading starts at the end.
    fails_beyond_newest: bool = True
    fetch_bytes: int = _MOST_FETCH_BYTES

    def check_table(self) -> None:
        """Raises OptionError if these are options of a stream."""
        for name, value in (
            ("maxOffsetsPerTrigger", self.max_offsets_per_trigger),
            ("minOffsetsPerTrigger", self.min_offsets_per_trigger),
        ):
            if value is not None:
                raise OptionError(f"{name} is for readStream; a table is read from its start to its end")
        _check_bound(self.start, LATEST, "begin at the latest offset; valid: earliest, offsets of your own, a time")
        _check_bound(self.end, EARLIEST, "end at the earliest offset; valid: latest, offsets of your own, a time")

    def check_stream(self) -> None:
        """Raises OptionError if these are options of a table."""
        if self.end is not None:
            raise OptionError(f"{self.end.name} is for read, and a stream does not end: leave it out")

    def open_cluster(self, *, first_patience_s: float | None = FIRST_PATIENCE_S) -> KafkaCluster:
        """The cluster; to be closed. ``first_patience_s``: None for tasks, which wait for a kproxy that restarts."""
        return KafkaCluster(
            self.bootstrap,
            client_id=self.client_id,
            request_timeout_s=self.request_timeout_s,
            patience_s=self.patience_s,
            security=self.security,
            first_patience_s=first_patience_s,
        )


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options that Spark hands over, whose names may be in any case. Raises OptionError."""
    given = _known(options)
    as_batches = choice(given, "records.as", ("records", "batches"), "records") == "batches"
    if as_batches:
        for name in (*_ISOLATION, "includeHeaders"):
            if name in given:
                raise OptionError(f"{name} does not go with records.as=batches, which returns all batches")
    least, most = number(given, "minOffsetsPerTrigger", None), number(given, "maxOffsetsPerTrigger", None)
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}")
    return ReadOptions(
        bootstrap=_servers(given),
        subscription=_subscription(given),
        start=_bound(given, _START),
        end=_bound(given, _END),
        max_offsets_per_trigger=most,
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        with_headers=boolean(given, "includeHeaders", default=False),
        min_partitions=number(given, "minPartitions", 1) or 1,
        committed=_is_committed(given),
        as_batches=as_batches,
        client_id=given.get("kafka.client.id", "kproxy-spark"),
        request_timeout_s=(number(given, "kafka.request.timeout.ms", 30_000) or 0) / 1000,
        patience_s=(number(given, "kafkaConsumer.pollTimeoutMs", 120_000) or 0) / 1000,
        max_decompressed_bytes=number(given, "maxDecompressedBytes", 128 << 20) or 0,
        security=security(given),
        min_offsets_per_trigger=least,
        max_trigger_delay_s=_delay_s(given, "maxTriggerDelay", "15m"),
        max_records_per_partition=number(given, "maxRecordsPerPartition", None),
        fails_beyond_newest=choice(given, _STRATEGY, ("error", "latest"), "error") == "error",
        fetch_bytes=min(number(given, name, _MOST_FETCH_BYTES) or 0 for name in _FETCH_BYTES),
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options under the names that are documented."""
    names = {name.lower(): name for name in _NAMES}
    found = {}
    for name, value in options.items():
        if name.lower() in _REASONS:
            raise OptionError(f"{name}: {_REASONS[name.lower()].replace('`', '')}")
        if name.lower() not in names:
            nearest = suggest(name, _NAMES) or f"; valid: {', '.join(sorted(_NAMES))}"
            raise OptionError(f"unknown option {name!r} of the source{nearest}")
        found[names[name.lower()]] = value
    return found


def _delay_s(given: Mapping[str, str], name: str, default: str) -> float:
    """Seconds from a time as Spark writes it: ``500ms``, ``30s``, ``15m``; a bare number is in ms."""
    text = given.get(name, default).strip().lower()
    match = _TIME.fullmatch(text)
    if match is None:
        raise OptionError(f"{name}: {given[name]!r} is no time; valid: 30s, 15m, 1h")
    return int(match[1]) * _TIME_UNITS[match[2] or "ms"]


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
        if word in _EVERYWHERE:
            return Bound(name, everywhere=_EVERYWHERE[word])
        return Bound(name, by_partition=offsets_json(name, given[name], least=EARLIEST, words=tuple(_EVERYWHERE)))
    return Bound(name, by_partition=offsets_json(name, given[name], least=0), is_time=True)


_EVERYWHERE: Final = {"earliest": EARLIEST, "latest": LATEST}


def _check_bound(bound: Bound | None, forbidden: int, what: str) -> None:
    if bound is None or bound.is_time:
        return
    if bound.everywhere == forbidden or forbidden in (bound.by_partition or {}).values():
        raise OptionError(f"{bound.name}: a table can't {what}")


def _is_committed(given: Mapping[str, str]) -> bool:
    name = _one_of(given, _ISOLATION) or _ISOLATION[0]
    levels = ("read_committed", "read_uncommitted")
    return choice(given, name, levels, levels[0]) == levels[0]
