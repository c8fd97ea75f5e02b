from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kproxy.codec.batch import Record, build_batch
from kproxy.spark.read_options import read_options
from kproxy.spark.spark_errors import DataLost
from kproxy.spark.stream_reader import StreamReader
from tests.spark.fake_cluster import Fake, fake_cluster

_ALL = ReadAllAvailable()


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster() as running:
        with running.client() as client:
            client.create_topic("t", 2)
        _produce(running, 0, 10)
        _produce(running, 1, 4)
        yield running


def _produce(fake: Fake, partition: int, count: int, topic: str = "t") -> None:
    with fake.client() as client:
        records = [Record(at, 1000, None, b"v") for at in range(count)]
        assert client.produce(topic, partition, build_batch(records)).error_code == 0


def _reader(fake: Fake, **options: str) -> StreamReader:
    if "subscribePattern" not in options:
        options["subscribe"] = "t"
    return StreamReader(read_options({"kafka.bootstrap.servers": fake.bootstrap, **options}))


@pytest.fixture
def reader(fake: Fake) -> Iterator[StreamReader]:
    made = _reader(fake, startingOffsets="earliest")
    yield made
    made.stop()


def _rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist())


def _span(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, at) for at in range(start, end)]


def test_batch_after_batch(fake: Fake, reader: StreamReader) -> None:
    start = reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    first = reader.latestOffset(start, _ALL)
    assert {"t": first["t"]} == {"t": {"0": 10, "1": 4}} == reader.reportLatestOffset()
    assert _rows(reader, start, first) == _span(0, 0, 10) + _span(1, 0, 4)
    assert reader.latestOffset(first, _ALL) == first
    _produce(fake, 1, 2)
    second = reader.latestOffset(first, _ALL)
    assert second == {"t": {"0": 10, "1": 6}}
    assert _rows(reader, first, second) == _span(1, 4, 6)


def test_a_stream_begins_at_the_latest_offset_and_stays_there_until_it_has_read(fake: Fake) -> None:
    reader = _reader(fake)
    start = reader.initialOffset()
    assert reader.latestOffset(start, _ALL) == start == {"t": {"0": 10, "1": 4}}
    _produce(fake, 0, 5)
    assert reader.initialOffset() == start
    assert _rows(reader, start, reader.latestOffset(start, _ALL)) == _span(0, 10, 15)
    reader.stop()


def test_the_first_batch_run_again_by_another_driver_is_the_same(fake: Fake) -> None:
    first = _reader(fake)
    start = first.initialOffset()
    _produce(fake, 0, 5)
    end = first.latestOffset(start, _ALL)
    first.stop()
    _produce(fake, 0, 5)
    again = _reader(fake)
    assert _rows(again, again.initialOffset(), end) == _span(0, 10, 15)
    assert _rows(again, end, again.latestOffset(end, _ALL)) == _span(0, 15, 20)
    again.stop()


def test_a_limit_is_that_of_the_options(fake: Fake, reader: StreamReader) -> None:
    assert reader.getDefaultReadLimit() == _ALL
    limited = _reader(fake, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    limit = limited.getDefaultReadLimit()
    assert limit == ReadMaxRows(7)
    start = limited.initialOffset()
    end = limited.latestOffset(start, limit)
    assert len(_rows(limited, start, end)) == 7
    assert limited.reportLatestOffset() == {"t": {"0": 10, "1": 4}}
    assert len(_rows(limited, end, limited.latestOffset(end, limit))) == 7
    limited.stop()


def test_what_is_new_begins_at_its_oldest_record(fake: Fake) -> None:
    reader = _reader(fake, subscribePattern="t|new")
    start = reader.initialOffset()
    with fake.client() as client:
        client.create_topic("new", 1)
    _produce(fake, 0, 6, "new")
    fake.do(lambda server: server.cluster.topics["new"].partitions[0].log.delete_before(2))
    _produce(fake, 0, 3)
    end = reader.latestOffset(start, _ALL)
    assert end["new"] == {"0": 6}
    assert _rows(reader, start, end) == _span(0, 2, 6) + _span(0, 10, 13)
    found = {str(part.value.partition): part.value[1:] for part in reader.partitions(start, end)}
    assert found == {"new-0": (2, 6), "t-0": (10, 13)}
    assert reader.latestOffset(end, ReadMaxRows(5)) == end
    reader.stop()


def test_a_pattern_matches_no_topic_of_the_brokers_or_of_kproxy(fake: Fake) -> None:
    with fake.client() as client:
        for topic in ("__consumer_offsets", "__kproxy_transaction_state", "__mine"):
            client.create_topic(topic, 1)
    reader = _reader(fake, subscribePattern=".*")
    assert sorted(reader.initialOffset()) == ["__mine", "t"]
    reader.stop()


def test_a_new_partition_under_a_limit_is_read_from_its_start(fake: Fake) -> None:
    reader = _reader(fake, subscribePattern="t|new")
    position = reader.initialOffset()
    with fake.client() as client:
        client.create_topic("new", 1)
    _produce(fake, 0, 6, "new")
    rounds = []
    for _ in range(3):
        end = reader.latestOffset(position, ReadMaxRows(2))
        rounds.append([part.value[1:] for part in reader.partitions(position, end)])
        position = end
    assert rounds == [[(0, 2)], [(2, 4)], [(4, 6)]]
    reader.stop()


def test_a_deleted_partition_is_loss(fake: Fake, reader: StreamReader) -> None:
    with fake.client() as client:
        client.create_topic("u", 1)
    _produce(fake, 0, 3, "u")
    both = _reader(fake, subscribePattern="t|u", startingOffsets="earliest")
    lenient = _reader(fake, subscribePattern="t|u", failOnDataLoss="false")
    begun = both.latestOffset(both.initialOffset(), _ALL)
    with fake.client() as client:
        client.delete_topic("u")
    with pytest.raises(DataLost, match="u-0 does not exist any more, of which offset 3 should come next"):
        both.latestOffset(begun, _ALL)
    assert lenient.latestOffset(begun, _ALL) == {"t": {"0": 10, "1": 4}}
    both.stop()
    lenient.stop()


def test_a_topic_recreated_is_loss(fake: Fake, reader: StreamReader) -> None:
    begun = reader.latestOffset(reader.initialOffset(), _ALL)
    with fake.client() as client:
        client.delete_topic("t")
        client.create_topic("t", 2)
    with pytest.raises(DataLost, match="t-0 ends at offset 0, though offset 10 should come next; set failOnDataLoss"):
        reader.latestOffset(begun, _ALL)
    lenient = _reader(fake, failOnDataLoss="false")
    end = lenient.latestOffset(begun, _ALL)
    assert end == {"t": {"0": 0, "1": 0}}
    assert _rows(lenient, begun, end) == []
    _produce(fake, 0, 2)
    assert _rows(lenient, end, lenient.latestOffset(end, _ALL)) == _span(0, 0, 2)
    lenient.stop()


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_what_is_available_now_ends_there(fake: Fake, start: str) -> None:
    reader = _reader(fake, startingOffsets=start)
    reader.prepareForTriggerAvailableNow()
    _produce(fake, 0, 5)
    position = reader.initialOffset()
    while (end := reader.latestOffset(position, ReadMaxRows(6))) != position:
        position = end
    assert position["t"] == {"0": 10, "1": 4}
    reader.stop()


def test_a_batch_waits_for_its_least_number_of_offsets_but_not_for_ever(fake: Fake) -> None:
    now = [0.0]
    wanted = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
    options = read_options({**wanted, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"})
    reader = StreamReader(options, lambda: now[0])
    first = reader.latestOffset(reader.initialOffset(), _ALL)
    assert first["t"] == {"0": 10, "1": 4}  # the first one never waits
    _produce(fake, 0, 3)
    assert reader.latestOffset(first, _ALL) == first
    _produce(fake, 1, 2)
    second = reader.latestOffset(first, _ALL)
    assert second["t"] == {"0": 13, "1": 6}
    _produce(fake, 0, 1)
    now[0] = 59.0
    assert reader.latestOffset(second, _ALL) == second
    now[0] = 60.0
    third = reader.latestOffset(second, _ALL)
    assert third["t"] == {"0": 14, "1": 6}
    _produce(fake, 0, 1)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(third, _ALL)["t"] == {"0": 15, "1": 6}
    reader.stop()
