"""The sink in Spark, through a kproxy to a real Kafka: whole batches once, whatever is repeated, fails or is killed."""

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException

from kproxy.client import ControlClient, ControlError
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.records import Record
from kproxy.spark import Upsert
from kproxy.spark.progress_listener import ProgressListener
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.plain_reader import read_committed
from verification.copiers.processes import Kproxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_PATIENCE = 300.0
_PARTITIONS = 2
_ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass
class Stage:
    kafka: RealKafka
    spark: "SparkSession"
    kproxy: Kproxy
    socket: Path
    home: str
    directory: Path
    topic: str
    id: str

    @property
    def control(self) -> ControlClient:
        return ControlClient(self.socket)

    @property
    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.kproxy.bootstrap,
            "kproxy.control.socket": str(self.socket),
            "transactional.id": self.id,
            "topic": self.topic,
        }

    def lines(self, name: str, *values: str) -> None:
        """One file is one batch of the stream."""
        source = self.directory / "in"
        source.mkdir(exist_ok=True)
        made = self.directory / name
        made.write_text("".join(f"{value}\n" for value in values))
        made.rename(source / name)

    def start(self, columns: str = "value", *, waits: bool = False, checkpoint: str = "checkpoint") -> "StreamingQuery":
        rows = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.directory / "in"))
        written = rows.selectExpr(columns).writeStream.format("kproxy").options(**self.options)
        written = written.option("checkpointLocation", str(self.directory / checkpoint))
        return written.trigger(**({"processingTime": "0 seconds"} if waits else {"availableNow": True})).start()

    def run(self, columns: str = "value") -> None:
        query = self.start(columns)
        assert query.awaitTermination(int(_PATIENCE))

    def seen(self) -> list[str]:
        """The values that a reader of committed data sees: at the broker, unless kproxy's log decides."""
        bootstrap = self.kproxy.bootstrap if self.home == "kproxy" else self.kafka.bootstrap
        return sorted(itertools.chain(*read_committed(bootstrap, self.topic, _PARTITIONS)))

    def written(self) -> int:
        """Records of all attempts: what readers of committed data are not shown, too."""
        return sum(map(len, read_committed(self.kafka.bootstrap, self.topic, _PARTITIONS, "read_uncommitted")))

    def records(self) -> list[Record]:
        found: list[Record] = []
        with ClusterClient(self.kproxy.bootstrap) as client:
            for partition in range(_PARTITIONS):
                data, at = client.read_all(self.topic, partition, isolation_level=1), 0
                while at < len(data):
                    size = read_header(data, at).size
                    found += iter_records(memoryview(data)[at : at + size], max_decompressed_bytes=1 << 24)
                    at += size
        return found


@pytest.fixture(scope="module")
def kproxy(
    request: pytest.FixtureRequest, kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Kproxy, Path, str]]:
    """A kproxy whose ``transactions.home`` is the parameter, by default that of kproxy."""
    home = getattr(request, "param", "auto")
    directory = tmp_path_factory.mktemp("kproxy")
    socket = directory / "control.sock"
    options = ("--control-socket", str(socket), "--transactions-home", home)
    with Kproxy(f"spark-sink-{home}", kafka.bootstrap, directory, *options) as running:
        running.wait_ready()
        yield running, socket, home
        assert running.bugs() == []


@pytest.fixture
def stage(spark: "SparkSession", kafka: RealKafka, kproxy: tuple[Kproxy, Path, str], tmp_path: Path) -> Stage:
    topic = f"sink-{uuid4().hex[:8]}"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(topic, _PARTITIONS)
    return Stage(kafka, spark, *kproxy, tmp_path, topic, f"id-{topic}")


both_homes = pytest.mark.parametrize("kproxy", ["auto", "kproxy"], indirect=True)


@both_homes
def test_a_stream_a_replayed_batch_and_a_failed_task(stage: Stage) -> None:
    for number in range(3):
        stage.lines(f"{number}.txt", f"a{number}", f"b{number}")
    stage.run()
    everything = ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert stage.seen() == everything
    # The driver dies between kproxy's commit and Spark's own note of it.
    for noted in ("2", ".2.crc"):
        (stage.directory / "checkpoint" / "commits" / noted).unlink()
    stage.run()
    assert stage.seen() == everything
    assert stage.written() == len(everything)
    stage.lines("3.txt", "a3", "b3", "c3")
    with pytest.raises(StreamingQueryException, match="the task fails"):
        stage.run("if(value = 'c3', raise_error('the task fails'), value) as value")
    assert stage.seen() == everything
    assert not stage.control.describe(stage.id).parts
    stage.run()
    assert stage.seen() == sorted([*everything, "a3", "b3", "c3"])


def test_an_older_driver_is_fenced(stage: Stage) -> None:
    stage.lines("0.txt", "a")
    query = stage.start(waits=True)
    try:
        _until(lambda: stage.seen() == ["a"], query)
        stage.control.initialize(stage.id)
        stage.lines("1.txt", "b")
        with pytest.raises(StreamingQueryException, match=r"another driver or query has taken transactional\.id"):
            query.awaitTermination(int(_PATIENCE))
    finally:
        query.stop()
    assert stage.seen() == ["a"]


def test_of_two_queries_under_one_id_in_one_session_the_newer_one_lives(stage: Stage) -> None:
    stage.lines("0.txt", "a")
    older = stage.start(waits=True)
    newer = None
    try:
        _until(lambda: stage.seen() == ["a"], older)
        newer = stage.start(waits=True, checkpoint="another")
        _until(lambda: stage.seen() == ["a", "a"], newer)
        for number in range(1, 6):
            stage.lines(f"{number}.txt", f"b{number}")
        with pytest.raises(StreamingQueryException, match=r"another driver or query has taken transactional\.id"):
            older.awaitTermination(int(_PATIENCE))
        _until(lambda: stage.seen() == ["a", "a", *(f"b{number}" for number in range(1, 6))], newer)
        older = stage.start(waits=True)
        with pytest.raises(StreamingQueryException, match=r"another driver or query has taken transactional\.id"):
            stage.lines("6.txt", "c")
            newer.awaitTermination(int(_PATIENCE))
    finally:
        for query in (older, newer):
            if query is not None:
                query.stop()


def test_the_mode_complete_is_refused(stage: Stage) -> None:
    stage.lines("0.txt", "a")
    rows = stage.spark.readStream.text(str(stage.directory / "in")).groupBy("value").count().select("value")
    write = rows.writeStream.outputMode("complete").format("kproxy").options(**stage.options)
    with pytest.raises(Exception, match="complete would append the whole result to the topic at each batch"):
        query = write.option("checkpointLocation", str(stage.directory / "checkpoint")).start()
        query.awaitTermination(int(_PATIENCE))
    assert stage.seen() == []


@both_homes
def test_kproxy_killed_in_the_middle_of_a_batch(stage: Stage) -> None:
    values = [f"{number:03}" + "x" * 70_000 for number in range(40)]
    stage.lines("0.txt", *values)
    # One row is one Arrow batch, larger than Spark's buffer: the first is written while the others still sleep.
    stage.spark.conf.set(_ROWS_PER_BATCH, "1")
    try:
        query = stage.start("concat(value, if(java_method('java.lang.Thread', 'sleep', 50L) is null, '', '')) as value")
        _until(lambda: bool(_open_parts(stage)), query)
    finally:
        stage.spark.conf.unset(_ROWS_PER_BATCH)  # not before: the query's own thread reads it
    stage.kproxy.kill()
    stage.kproxy.start()
    stage.kproxy.wait_ready()
    # If it is killed before its member was prepared, the task fails, and with it the query; after that kproxy is
    # awaited.
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(int(_PATIENCE))
    assert stage.seen() in ([], values)
    stage.run()
    assert stage.seen() == values


def test_batch_writes(stage: Stage) -> None:
    rows: DataFrame = stage.spark.sql(
        """select 'k' key, cast(id as string) value, 1 partition, timestamp_millis(1000 + id) timestamp,
           array(named_struct('key', 'h', 'value', cast('1' as binary))) headers from range(3)"""
    )
    for _ in range(2):
        rows.write.format("kproxy").options(**stage.options).option("batch.id", "one").mode("append").save()
    found = stage.records()
    assert sorted((record.key, record.value, record.timestamp) for record in found) == [
        (b"k", b"%d" % number, 1000 + number) for number in range(3)
    ]
    assert list(found[0].headers) == [("h", b"1")]
    rows.write.format("kproxy").options(**stage.options).mode("append").save()
    assert len(stage.records()) == 6
    with pytest.raises(Exception, match=r"kafka\.acks: the sink sets it"):
        rows.write.format("kproxy").options(**stage.options, **{"kafka.acks": "1"}).mode("append").save()


def test_a_broker_in_place_of_kproxy_is_refused_and_nobody_is_fenced(stage: Stage, kafka: RealKafka) -> None:
    owner = stage.control.initialize(stage.id).owner
    rows = stage.spark.sql("select cast(id as string) value from range(3)")
    wrong = stage.options | {"kafka.bootstrap.servers": kafka.bootstrap}
    with pytest.raises(Exception, match="is not the kproxy whose control API is at"):
        rows.write.format("kproxy").options(**wrong).mode("append").save()
    assert stage.records() == []
    assert stage.control.describe(stage.id).owner == owner


def test_a_topic_that_does_not_exist_is_refused_unless_the_broker_may_create_it(stage: Stage) -> None:
    owner = stage.control.initialize(stage.id).owner
    rows = stage.spark.sql("select cast(id as string) value from range(3)")
    misspelt = stage.options | {"topic": f"{stage.topic}-misspelt"}
    with pytest.raises(Exception, match="misspelt' does not exist: create it"):
        rows.write.format("kproxy").options(**misspelt).mode("append").save()
    assert stage.control.describe(stage.id).owner == owner
    by_column = {name: value for name, value in stage.options.items() if name != "topic"}
    with pytest.raises(Exception, match="misspelt' does not exist: create it"):
        with_topic = rows.selectExpr("value", f"'{stage.topic}-misspelt' as topic")
        with_topic.write.format("kproxy").options(**by_column).mode("append").save()
    created = misspelt | {"kafka.allow.auto.create.topics": "true"}
    rows.write.format("kproxy").options(**created).mode("append").save()
    assert sorted(*read_committed(stage.kafka.bootstrap, misspelt["topic"], 1)) == ["0", "1", "2"]


def _open_parts(stage: Stage) -> Any:
    try:
        return stage.control.describe(stage.id).parts
    except ControlError:
        return ()


def _until(true: Any, query: "StreamingQuery") -> None:
    deadline = time.monotonic() + _PATIENCE
    while not true():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.1)


def rows_read(listener: ProgressListener) -> float:
    samples = [sample for metric in listener.registry.collect() for sample in metric.samples]
    return sum(sample.value for sample in samples if sample.name == "kproxy_spark_rows_read_total")


def test_update_mode_writes_each_changed_row_once(stage: Stage) -> None:
    def run() -> None:
        lines = stage.spark.readStream.option("maxFilesPerTrigger", 1).text(str(stage.directory / "in"))
        counts = lines.groupBy("value").count().selectExpr("value as key", "concat(value, '=', count) as value")
        written = counts.writeStream.outputMode("update").foreachBatch(Upsert(stage.options))
        written = written.option("checkpointLocation", str(stage.directory / "checkpoint"))
        assert written.trigger(availableNow=True).start().awaitTermination(int(_PATIENCE))

    listener = ProgressListener()
    stage.spark.streams.addListener(listener)
    try:
        stage.lines("0.txt", "x", "y", "x")
        run()
        stage.lines("1.txt", "x")
        run()
        deadline = time.monotonic() + _PATIENCE  # Spark reports a batch some time after it
        while rows_read(listener) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        stage.spark.streams.removeListener(listener)
    assert stage.seen() == ["x=2", "x=3", "y=1"]
    # The driver dies between kproxy's commit and Spark's own note of it.
    for noted in ("1", ".1.crc"):
        (stage.directory / "checkpoint" / "commits" / noted).unlink()
    run()
    assert stage.seen() == ["x=2", "x=3", "y=1"]
    assert stage.written() == 3
    # The rows of that batch were not written; the counts continue after it all the same.
    stage.lines("2.txt", "y", "x")
    run()
    assert stage.seen() == ["x=2", "x=3", "x=4", "y=1", "y=2"]
