"""Pipelines from parquet to parquet, on a Spark of this machine."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame

from kproxy.config.config_faults import Faults
from kproxy.spark.pipeline import FileError, Pipeline
from kproxy.spark.pipeline.data_frames import build
from kproxy.spark.pipeline.display import JsonLines
from kproxy.spark.pipeline.parquet_batches import ParquetBatches
from kproxy.spark.pipeline.pipeline_errors import PipelineFailed
from kproxy.spark.pipeline.progress import BatchDone
from kproxy.spark.pipeline.queries import checkpoint_name, start
from kproxy.spark.pipeline.topic_rows import topic_rows
from kproxy.spark.pipeline.watch import Stop, watch
from tests.spark.pipeline.files import loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILE = """\
sources:
  orders: {{parquet: "{0}/orders", schema: "shop bigint, n bigint", max.files.per.trigger: 1}}
  shops: {{parquet: "{0}/shops", static: true}}
steps:
  - name: known
    sql: SELECT * FROM orders JOIN shops USING (shop)
  - {{name: dear, python: "pipeline_test_steps:dear", path: .}}
sinks:
  - {{parquet: "{0}/dear", from: dear, partition.by: town}}
checkpoint: "{0}/checkpoint"
trigger: {{continuous: 0 seconds}}
"""
STEPS = "def dear(known):\n    return known.where('n >= 10')\n"


class StopAfter(JsonLines):
    """Asks for the end when a batch is committed."""

    def __init__(self, stop: Stop, batch: int) -> None:
        self.batches: list[BatchDone] = []
        self._stop, self._last = stop, batch

    def show(self, done: BatchDone) -> None:
        self.batches.append(done)
        if done.batch >= self._last:
            self._stop.ask()


def run(pipeline: Pipeline, spark: "SparkSession", last_batch: int) -> list[BatchDone]:
    """Runs it until it has shown this batch; the batches of this run."""
    stop = Stop()
    display = StopAfter(stop, last_batch)
    watch(start(pipeline, spark), display, stop)
    return display.batches


def test_each_batch_is_there_once(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "pipeline_test_steps.py").write_text(STEPS)
    spark.sparkContext.addPyFile(str(tmp_path / "pipeline_test_steps.py"))
    pipeline = loaded(tmp_path, FILE.format(tmp_path))
    spark.createDataFrame([(1, "Bonn"), (2, "Köln")], "shop bigint, town string").coalesce(1).write.parquet(
        str(tmp_path / "shops")
    )
    orders, out = str(tmp_path / "orders"), tmp_path / "dear"
    for numbers in ([(1, 5), (1, 10), (2, 11)], [(2, 12), (3, 100)]):
        spark.createDataFrame(numbers, "shop bigint, n bigint").coalesce(1).write.mode("append").parquet(orders)

    def rows() -> list[tuple[int, str]]:
        return sorted((row.n, row.town) for row in spark.read.parquet(str(out)).collect())

    batches = run(pipeline, spark, last_batch=1)
    assert [done.batch for done in batches] == [0, 1]
    assert sum(done.rows_out[str(out)] for done in batches) == 3
    assert rows() == [(10, "Bonn"), (11, "Köln"), (12, "Köln")]

    # As after a crash between the end of the output and Spark's note of it: the batch is run again.
    for note in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / checkpoint_name(str(out)) / "commits" / note).unlink()
    assert [done.batch for done in run(pipeline, spark, last_batch=1)] == [1]
    assert rows() == [(10, "Bonn"), (11, "Köln"), (12, "Köln")]

    other = loaded(tmp_path, FILE.format(tmp_path).replace("/checkpoint", "/checkpoint-2"))
    with pytest.raises(PipelineFailed, match="has the output of another checkpoint"):
        run(other, spark, last_batch=1)
    assert rows() == [(10, "Bonn"), (11, "Köln"), (12, "Köln")]


COPY = """\
sources: {{orders: {{parquet: "{0}/orders", schema: n bigint}}}}
steps: [{{name: copy, sql: SELECT n FROM orders}}]
sinks: [{{parquet: "{0}/copy", from: copy}}]
checkpoint: "{0}/checkpoint"
trigger: {{continuous: 0 seconds}}
"""


class StopInBatch(Stop):
    """Asks twice for the end, which stops at once, when a batch has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def wait(self) -> None:
        if not self.asked and self.begun.wait(0.01):
            self.ask()
            self.ask()
        super().wait()


def test_a_stop_in_the_middle_of_a_batch_is_no_failure(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopInBatch()

    class Interrupted(ParquetBatches):
        def __call__(self, frame: DataFrame, batch: int) -> None:
            stop.begun.set()
            jvm: Any = frame.sparkSession._jvm
            while not jvm.java.lang.Thread.currentThread().isInterrupted():
                time.sleep(0.01)
            # Spark knows most of the exceptions that an interrupt causes by their names, but not all.
            raise OSError("the write was broken off")

    spark.createDataFrame([(1,)], "n bigint").write.parquet(str(tmp_path / "orders"))
    pipeline, shown = loaded(tmp_path, COPY.format(tmp_path)), StopAfter(Stop(), 100)
    with monkeypatch.context() as patch:
        patch.setattr("kproxy.spark.pipeline.queries.ParquetBatches", Interrupted)
        watch(start(pipeline, spark), shown, stop)
    assert shown.batches == []
    assert not list((tmp_path / "copy").glob("batch=*"))

    assert [done.batch for done in run(pipeline, spark, last_batch=0)] == [0]
    assert [row.n for row in spark.read.parquet(str(tmp_path / "copy")).collect()] == [1]


SMALL = """\
sources: {{a: {{parquet: /none, schema: n bigint}}}}
steps:
  - name: b
    sql: {sql}
sinks: [{{topic: t, from: b{sink}}}]
kafka: {{bootstrap.servers: "127.0.0.1:1"}}
checkpoint: /c
trigger: availableNow
"""


@pytest.mark.parametrize(
    ("sql", "sink", "line"),
    [
        ("SELEC 1 FROM a", "", r":4: steps\[0\].sql: step 'b': \[PARSE_SYNTAX_ERROR\] .*'SELEC'"),
        ("SELECT m FROM a", "", r":4: steps\[0\].sql: step 'b': \[UNRESOLVED_COLUMN.* `m` "),
        ("SELECT n FROM a", "", r":5: sinks\[0\]: 'b' has no column value: give"),
        ("SELECT n AS value FROM a", ", key: x", r":5: sinks\[0\]: \[UNRESOLVED_COLUMN"),
        ("SELECT struct(n) AS value FROM a", "", r":5: sinks\[0\]: value is of type struct<n:bigint>: make text of it"),
    ],
)
def test_what_spark_says_is_reported_with_the_line(
    spark: "SparkSession", tmp_path: Path, sql: str, sink: str, line: str
) -> None:
    (tmp_path / "none").mkdir()
    text = SMALL.format(sql=sql, sink=sink).replace("/none", str(tmp_path / "none"))
    pipeline = loaded(tmp_path, text)
    with pytest.raises(FileError, match=line):
        start(pipeline, spark)


def test_rows_of_all_topics_are_one_table(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    text = SMALL.format(sql="SELECT n, 0 AS partition, 'x' AS value FROM a", sink=", key: n")
    text = text.replace("/none", str(tmp_path / "none")).replace("sinks: [", "sinks: [{topic: u, from: b, value: n}, ")
    pipeline = loaded(tmp_path, text)
    faults = Faults("p.yaml")
    rows = topic_rows(pipeline, build(pipeline, spark, faults), faults)
    assert rows is not None, faults
    columns = [("topic", "string"), ("key", "binary"), ("value", "binary"), ("partition", "int")]
    assert (rows.dtypes, rows.isStreaming) == (columns, True)


def test_an_unreachable_kproxy_is_no_fault_of_the_file(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none").mkdir()
    text = SMALL.format(sql="SELECT 'x' AS value FROM a", sink="").replace("/none", str(tmp_path / "none"))
    monkeypatch.setattr("kproxy.spark.sink.FIRST_PATIENCE_S", 0.2)
    with pytest.raises(PipelineFailed, match=r"^topics: kafka.* cannot connect to 127\.0\.0\.1:1: .*running there\?"):
        start(loaded(tmp_path, text), spark)
