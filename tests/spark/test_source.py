"""The source in Spark: a real Kafka, kproxy between, transactions of all fates in the topics."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.compression import GZIP, LZ4, SNAPPY, ZSTD
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_SECONDS = 120
_EACH = 40


@dataclass(frozen=True)
class Stage:
    """A session, kproxy with its own transactions, and a topic with two partitions of what is to be read."""

    spark: "SparkSession"
    bootstrap: str

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **more}

    def table(self, topic: str, **more: str) -> "DataFrame":
        return self.spark.read.format("kproxy").options(**self.options(topic, **more)).load()

    def produce(self, topic: str, partition: int, start: int, count: int, codec: int = 0) -> None:
        now = time.time_ns() // 1_000_000
        records = [Record(at, now, b"key", b"%d" % (start + at), (("h", b"x"),)) for at in range(count)]
        with ClusterClient(self.bootstrap) as client:
            assert client.produce(topic, partition, build_batch(records, codec=codec)).error_code == 0


@pytest.fixture(scope="module")
def stage(kafka: RealKafka, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    log = tmp_path_factory.mktemp("source") / "kproxy.log"
    with KproxyProcess(kafka.bootstrap, log, "--transactions-home", "kproxy") as kproxy:
        yield Stage(spark, kproxy.bootstrap)
        kproxy.check()


def _transact(bootstrap: str, topic: str, name: str, value: str, end: str) -> Producer:
    """A transaction of ``_EACH`` records that is committed, aborted, or left open."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 900_000,
            "compression.type": "zstd",
        }
    )
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    for _ in range(_EACH):
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(_SECONDS) == 0
    if end == "commit":
        producer.commit_transaction(_SECONDS)
    elif end == "abort":
        producer.abort_transaction(_SECONDS)
    return producer


def test_a_table_shows_what_is_committed_and_its_batches_tell_the_rest(stage: Stage, kafka: RealKafka) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic("fates", 2)
    for number, codec in enumerate((0, GZIP, SNAPPY, LZ4, ZSTD)):
        stage.produce("fates", 1, 100 * number, 100, codec)
    ends = ("abort", "commit", "abort", "open")
    names = [f"fates-{number}" for number in range(len(ends))]
    producers = [_transact(stage.bootstrap, "fates", name, name, end) for name, end in zip(names, ends, strict=True)]

    rows = stage.table("fates", includeHeaders="true", minPartitions="5").collect()
    seen = [row for row in rows if row.partition == 0]
    assert sorted(int(row.value) for row in rows if row.partition == 1) == list(range(500))
    assert {bytes(row.value) for row in seen} == {b"fates-1"}
    assert len(seen) == _EACH
    assert {row.headers[0]["key"] for row in rows if row.partition == 1} == {"h"}
    everything = stage.table("fates", **{"isolation.level": "read_uncommitted"})
    assert everything.count() == 500 + len(ends) * _EACH

    batches = stage.table("fates", **{"records.as": "batches"}).where("not is_control")  # kproxy's fences are markers
    assert {tuple(row) for row in batches.groupBy("partition", "visibility").sum("records").collect()} == {
        (0, "aborted", 2 * _EACH),
        (0, "committed", _EACH),
        (0, "undecided", _EACH),
        (1, "committed", 500),
    }
    producers[-1].abort_transaction(_SECONDS)


def test_a_stream_continues_from_its_checkpoint(stage: Stage, kafka: RealKafka, tmp_path: Path) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic("flow-a", 2)
    options = {"subscribePattern": "flow-.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
    options["kafka.bootstrap.servers"] = stage.bootstrap

    def run() -> list[int]:
        stream = stage.spark.readStream.format("kproxy").options(**options).load()
        written = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = written.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(_SECONDS)
        return [progress["numInputRows"] for progress in query.recentProgress]

    stage.produce("flow-a", 0, 0, 200)
    stage.produce("flow-a", 1, 200, 50)
    assert run() == [150, 100]
    _transact(stage.bootstrap, "flow-a", "flow", "250", "abort")
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic("flow-b", 1)
    stage.produce("flow-a", 1, 250, 30)
    stage.produce("flow-b", 0, 280, 20)
    assert sum(run()) == 50
    found = stage.spark.read.parquet(str(tmp_path / "out")).selectExpr("cast(cast(value as string) as int)").collect()
    assert sorted(row[0] for row in found) == list(range(300))


def test_a_running_stream_sees_what_is_decided_later(stage: Stage, kafka: RealKafka, tmp_path: Path) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic("later", 1)
    seen: list[str] = []
    stream = stage.spark.readStream.format("kproxy").options(**stage.options("later", startingOffsets="earliest"))

    def take(frame: "DataFrame", batch: int) -> None:
        seen.extend(row.value.decode() for row in frame.collect())

    query = stream.load().writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
    try:
        producer = _transact(stage.bootstrap, "later", "later", "late", "open")
        query.processAllAvailable()
        assert seen == []
        producer.commit_transaction(_SECONDS)
        query.processAllAvailable()
        assert seen == ["late"] * _EACH
    finally:
        query.stop()


def test_a_wrong_option_is_reported_when_the_table_is_made(stage: Stage) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=r"OptionError: failOnDataLoss: 'no' is neither true nor false"):
        stage.table("fates", failOnDataLoss="no")
