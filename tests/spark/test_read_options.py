import pickle

import pytest

from kproxy.proxy.routing import Address
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, TopicPartition
from kproxy.spark.option_table import NO_EFFECT, REFUSED, SparkOption
from kproxy.spark.read_options import Bound, ReadOptions, read_options
from kproxy.spark.spark_errors import OptionError

_LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
_OFFSETS = '{"t": {"0": 5, "1": -2}}'


def _options(**changes: str) -> ReadOptions:
    return read_options({**_LEAST, **{name.replace("__", "."): value for name, value in changes.items()}})


def test_defaults_are_those_of_sparks_kafka_source_but_for_the_isolation_level() -> None:
    options = _options()
    assert options.bootstrap == (Address("localhost", 9092),)
    assert options.subscription.topics == {"t"}
    assert (options.start, options.end, options.max_offsets_per_trigger) == (None, None, None)
    assert (options.fail_on_data_loss, options.with_headers, options.min_partitions) == (True, False, 1)
    assert options.committed and not options.as_batches
    assert (options.patience_s, options.request_timeout_s) == (120, 30)


def test_names_and_words_are_taken_in_any_case() -> None:
    options = read_options(
        {
            "KAFKA.bootstrap.servers": " a:1 , [::1]:2",
            "SUBSCRIBEPATTERN": "t.*",
            "startingoffsets": "Earliest",
            "failondataloss": "FALSE",
            "isolation.Level": "READ_UNCOMMITTED",
        }
    )
    assert [str(address) for address in options.bootstrap] == ["a:1", "[::1]:2"]
    assert options.subscription.pattern is not None and options.subscription.pattern.fullmatch("topic")
    assert options.start == Bound("startingOffsets", EARLIEST)
    assert not options.fail_on_data_loss and not options.committed


def test_offsets_and_times() -> None:
    parts = {TopicPartition("t", 0): 5, TopicPartition("t", 1): EARLIEST}
    assert _options(startingOffsets=_OFFSETS).start == Bound("startingOffsets", by_partition=parts)
    assert _options(endingOffsets="latest").end == Bound("endingOffsets", LATEST)
    assert _options(startingTimestamp="17").start == Bound("startingTimestamp", 17, is_time=True)
    times = _options(endingOffsetsByTimestamp='{"t": {"0": 5}}').end
    assert times == Bound("endingOffsetsByTimestamp", by_partition={TopicPartition("t", 0): 5}, is_time=True)


def test_assigned_partitions() -> None:
    options = read_options({"kafka.bootstrap.servers": "a:1", "assign": '{"t": [0, 2]}'})
    assert options.subscription.partitions == {TopicPartition("t", 0), TopicPartition("t", 2)}


def test_options_travel_between_processes() -> None:
    options = read_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "x+", "startingOffsets": _OFFSETS})
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"subscribee": "t"}, ["subscribee", "subscribe"]),
        ({"subscribePattern": "t"}, ["subscribe", "subscribePattern", "contradict"]),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, ["startingOffsets", "startingTimestamp"]),
        ({"isolation__level": "x"}, ["isolation.level", "'x'", "read_committed, read_uncommitted"]),
        ({"isolation__level": "read_committed", "kafka__isolation__level": "read_committed"}, ["contradict"]),
        ({"maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger", "'0'", "1 or more"]),
        ({"minPartitions": "many"}, ["minPartitions", "'many'"]),
        ({"failOnDataLoss": "perhaps"}, ["failOnDataLoss", "true nor false"]),
        ({"startingOffsets": "newest"}, ["startingOffsets", "'newest'", '{"topic"']),
        ({"startingOffsets": "first"}, ["startingOffsets: 'first': valid: earliest, latest or {"]),
        ({"startingOffsets": "earlyest"}, ["did you mean 'earliest'?"]),
        ({"startingOffsets": "[1]"}, ["startingOffsets", "no JSON object"]),
        ({"startingOffsets": '{"t": 1}'}, ["startingOffsets", "'t'"]),
        ({"startingOffsets": '{"t": {"0": -3}}'}, ["startingOffsets", "-3"]),
        ({"startingOffsets": '{"t": {"x": 1}}'}, ["startingOffsets", "'x'"]),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, ["startingOffsetsByTimestamp", "-1"]),
        ({"kafka__bootstrap__servers": "nowhere"}, ["kafka.bootstrap.servers", "'nowhere'"]),
        ({"kafka__bootstrap__servers": "k:1,::1:2"}, ["kafka.bootstrap.servers", "'::1:2'", "[::1]:9092"]),
        ({"kafka__bootstrap__servers": " , "}, ["kafka.bootstrap.servers is missing"]),
        ({"kafka__security__protocol": "TLS"}, ["kafka.security.protocol"]),
        ({"subscribe": " , "}, ["subscribe is empty"]),
        ({"maxTriggerDelay": "soon"}, ["maxTriggerDelay", "'soon'", "15m"]),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, ["minOffsetsPerTrigger: 9", "5"]),
        ({"startingOffsetsByTimestampStrategy": "x"}, ["startingOffsetsByTimestampStrategy", "error, latest"]),
        ({"kafka__auto__offset__reset": "latest"}, ["kafka.auto.offset.reset", "set startingOffsets"]),
        ({"kafka__enable__auto__commit": "false"}, ["Spark's own connector refuses it, too"]),
        ({"records__as": "rows"}, ["records.as", "records, batches"]),
        ({"records__as": "batches", "includeHeaders": "true"}, ["includeHeaders", "records.as=batches"]),
        ({"records__as": "batches", "isolation__level": "read_committed"}, ["isolation.level", "records.as=batches"]),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(changes: dict[str, str], words: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        _options(**changes)
    text = str(caught.value)
    assert "\n" not in text
    assert all(word in text for word in words)


@pytest.mark.parametrize("given", [{}, {"subscribePattern": "("}, {"assign": "{}"}, {"assign": '{"t": ["0"]}'}])
def test_what_to_read_must_be_said(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"subscribe|assign"):
        read_options({"kafka.bootstrap.servers": "a:1", **given})


def test_what_fits_a_stream_only_or_a_table_only() -> None:
    _options(startingOffsets="latest", maxOffsetsPerTrigger="5").check_stream()
    _options(startingOffsets="earliest", endingTimestamp="5").check_table()
    with pytest.raises(OptionError, match="endingOffsets is for read"):
        _options(endingOffsets="latest").check_stream()
    for wrong in (
        _options(maxOffsetsPerTrigger="5"),
        _options(startingOffsets="latest"),
        _options(startingOffsets='{"t": {"0": -1}}'),
        _options(endingOffsets="earliest"),
        _options(endingOffsets='{"t": {"0": -2}}'),
    ):
        with pytest.raises(OptionError, match="Offsets"):
            wrong.check_table()


@pytest.mark.parametrize("option", NO_EFFECT, ids=lambda option: option.names[0])
def test_what_has_no_effect_here_is_taken(option: SparkOption) -> None:
    wanted = {"kafka.bootstrap.servers": "k:9092", "subscribe": "t"}
    assert read_options({**wanted, **dict.fromkeys(option.names, "5")}) == read_options(wanted)


@pytest.mark.parametrize("name", [name for option in REFUSED for name in option.names])
def test_what_the_table_refuses_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=name.replace(".", r"\.") + ": "):
        read_options({"kafka.bootstrap.servers": "k:9092", "subscribe": "t", name: "x"})


def test_sizes_and_times_of_spark() -> None:
    found = read_options(
        {
            "kafka.bootstrap.servers": "k:9092",
            "subscribe": "t",
            "kafka.fetch.max.bytes": "1000000",
            "kafka.max.partition.fetch.bytes": "2000000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "90s",
            "maxRecordsPerPartition": "100",
        }
    )
    assert (found.fetch_bytes, found.min_offsets_per_trigger) == (1_000_000, 10)
    assert (found.max_trigger_delay_s, found.max_records_per_partition) == (90, 100)
