import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey
from kproxy.spark.read_options import read_options
from kproxy.spark.spark_errors import DataLost, KafkaError, OptionError
from kproxy.spark.table_reader import TableReader
from kproxy.testing.fake_broker import Edit
from tests.spark.fake_cluster import Fake, fake_cluster


def _batch(first: int, count: int = 10) -> bytearray:
    return build_batch([Record(at, 1000 * (first + at), b"k", b"%d" % (first + at)) for at in range(count)])


@pytest.fixture(scope="module")
def fake() -> Iterator[Fake]:
    with fake_cluster() as running:
        with running.client() as client:
            client.create_topic("orders", 2)
            client.create_topic("other", 1)
            for at in range(0, 50, 10):
                client.produce("orders", 0, _batch(at))
            client.produce("orders", 1, _batch(0))
        yield running


def _reader(fake: Fake, **options: str) -> TableReader:
    named = {name.replace("__", "."): value for name, value in options.items()}
    if not named.keys() & {"subscribe", "subscribePattern", "assign"}:
        named["subscribe"] = "orders"
    return TableReader(read_options({"kafka.bootstrap.servers": fake.bootstrap, **named}))


def _read(fake: Fake, **options: str) -> list[dict[str, Any]]:
    reader = _reader(fake, **options)
    rows: list[dict[str, Any]] = []
    for part in reader.partitions():
        there, task = pickle.loads(pickle.dumps((reader, part)))
        rows += [row for batch in there.read(task) for row in batch.to_pylist()]
    return rows


def _ranges(fake: Fake, **options: str) -> list[tuple[str, int, int]]:
    return [(str(part.value.partition), *part.value[1:]) for part in _reader(fake, **options).partitions()]


def test_everything_there_is(fake: Fake) -> None:
    rows = _read(fake)
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, at) for at in range(50)),
        *((1, at) for at in range(10)),
    ]
    assert [int(row["value"]) for row in rows] == [row["offset"] for row in rows]


def test_topics_by_pattern_and_partitions_by_number(fake: Fake) -> None:
    assert {row["topic"] for row in _read(fake, subscribePattern="o.*rs")} == {"orders"}
    assert _ranges(fake, subscribePattern="nothing") == []
    assert _ranges(fake, assign='{"orders": [1]}') == [("orders-1", 0, 10)]
    assert _ranges(fake, subscribe="orders,other") == [("orders-0", 0, 50), ("orders-1", 0, 10)]


def test_no_tasks_is_one_that_reads_nothing(fake: Fake) -> None:
    assert list(_reader(fake).read(InputPartition(None))) == []


def test_offsets_and_times(fake: Fake) -> None:
    bounds = {"startingOffsets": '{"orders": {"0": 5, "1": -2}}', "endingOffsets": '{"orders": {"0": 40, "1": -1}}'}
    assert _ranges(fake, **bounds) == [("orders-0", 5, 40), ("orders-1", 0, 10)]
    assert _ranges(fake, startingTimestamp="8001") == [("orders-0", 9, 50), ("orders-1", 9, 10)]
    assert _ranges(fake, startingTimestamp="20000", startingOffsetsByTimestampStrategy="latest") == [
        ("orders-0", 20, 50)
    ]
    assert _ranges(fake, endingTimestamp="20000") == [("orders-0", 0, 20), ("orders-1", 0, 10)]
    by_time = {
        "startingOffsetsByTimestamp": '{"orders": {"0": 20000, "1": 5000}}',
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert _ranges(fake, **by_time) == [("orders-0", 20, 50), ("orders-1", 5, 10)]


def test_big_partitions_are_shared_by_tasks_and_read_once(fake: Fake) -> None:
    assert len(_ranges(fake, minPartitions="7")) > 6
    assert len(_read(fake, minPartitions="7")) == 60


def test_one_row_for_each_batch(fake: Fake) -> None:
    rows = _read(fake, records__as="batches", minPartitions="7")
    assert [(row["partition"], row["base_offset"], row["records"], row["visibility"]) for row in rows] == [
        *((0, at, 10, "committed") for at in range(0, 50, 10)),
        (1, 0, 10, "committed"),
    ]


def test_batches_are_judged_by_the_last_stable_offset_of_the_plan(fake: Fake) -> None:
    def undecided_from_20(call: Any) -> Edit | None:
        def change(answer: Any) -> None:
            answer.topics[0].partitions[0].offset = 20

        return (
            Edit(change)
            if call.request.isolation_level and call.request.topics[0].partitions[0].timestamp == -1
            else None
        )

    control = fake.do(lambda server: server.cluster.control(ApiKey.LIST_OFFSETS, undecided_from_20))
    try:
        rows = _read(fake, records__as="batches", assign='{"orders": [0]}')
        assert [row["visibility"] for row in rows] == ["committed"] * 2 + ["undecided"] * 3
        assert _ranges(fake, assign='{"orders": [0]}') == [("orders-0", 0, 20)]
        assert _ranges(fake, assign='{"orders": [0]}', isolation__level="read_uncommitted") == [("orders-0", 0, 50)]
    finally:
        fake.do(lambda server: server.cluster.controls.remove(control))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "nothing"}, "topic 'nothing' does not exist"),
        ({"assign": '{"orders": [5]}'}, "assign: partition orders-5 does not exist"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "startingOffsets: orders-1 is missing"),
        ({"endingOffsets": '{"orders": {"0": 5, "1": 5, "2": 7}}'}, "endingOffsets: orders-2 is given"),
    ],
)
def test_what_does_not_fit_the_cluster_is_reported(fake: Fake, options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        _ranges(fake, **options)


def test_a_start_after_the_end_is_loss(fake: Fake) -> None:
    start = '{"orders": {"0": 70, "1": 0}}'
    with pytest.raises(DataLost, match="orders-0 ends at offset 50, though offset 70 should come next"):
        _ranges(fake, startingOffsets=start)
    assert _ranges(fake, startingOffsets=start, failOnDataLoss="false") == [("orders-1", 0, 10)]


def test_nobody_there() -> None:
    with fake_cluster() as ended:
        pass
    with pytest.raises(KafkaError, match=f"cannot connect to {ended.bootstrap}"):
        _ranges(ended, kafkaConsumer__pollTimeoutMs="100")


def test_a_starting_time_after_the_newest_record_is_an_error_as_in_spark(fake: Fake) -> None:
    with pytest.raises(OptionError, match=r"startingTimestamp: orders-1 has no record .*Strategy latest begins at"):
        _ranges(fake, startingTimestamp="20000")


def test_no_task_reads_more_than_it_may(fake: Fake) -> None:
    found = _ranges(fake, maxRecordsPerPartition="20")
    assert found == [("orders-0", 0, 16), ("orders-0", 16, 33), ("orders-0", 33, 50), ("orders-1", 0, 10)]
