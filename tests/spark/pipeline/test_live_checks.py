from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kproxy.config.config_faults import Faults, FileError
from kproxy.spark.pipeline import read
from kproxy.spark.pipeline.live_checks import check_live, topic_faults
from kproxy.spark.pipeline.pipeline_model import Pipeline
from kproxy.testing.cluster_client import ClusterClient
from tests.spark.fake_cluster import fake_cluster
from tests.spark.pipeline.files import loaded, write

TEXT = """\
kafka:
  bootstrap.servers: BOOTSTRAP
sources:
  lines: {topics: [orders]}
steps:
  - name: parsed
    sql: SELECT CAST(value AS STRING) AS line FROM lines
  - name: totals
    sql: SELECT shop FROM parsed
  - name: called
    python: live_check_steps:called
    path: .
  - name: after
    sql: SELECT nothing FROM totals
  - name: typo
    sql: SELEC line FROM parsed
sinks:
  - {topic: ordres, from: parsed, value: line}
  - {topic: orders-clean, from: parsed, value: lime}
  - {parquet: /out, from: after}
checkpoint: /tmp/checkpoint
trigger: availableNow
spark:
  spark.sql.shuffle.partitions: many
  spark.sql.shuffle.partition: 4
  spark.executor.memory: 2q
  spark.master: locale
  spark.sql.session.timeZone: UTC
  spark.hadoop.my.own: 5
"""
STEPS = """\
def called(parsed): return fine(parsed).where("shop > 1")
def fine(parsed): return parsed.where("line > ''")
"""


def pipeline_at(bootstrap: str, folder: Path, text: str = TEXT) -> Pipeline:
    """The pipeline, with the topics of the file but one."""
    (folder / "live_check_steps.py").write_text(STEPS)
    with ClusterClient(bootstrap) as client:
        for topic in ("orders", "orders-clean"):
            client.create_topic(topic, 1)
    return loaded(folder, text.replace("BOOTSTRAP", bootstrap))


def test_topics_that_do_not_exist(tmp_path: Path) -> None:
    with fake_cluster() as fake:
        pipeline = pipeline_at(fake.bootstrap, tmp_path)
        faults = [(place.line, text) for place, text in topic_faults(pipeline)]
    assert faults == [(18, "topic 'ordres' does not exist; did you mean 'orders'?")]


@pytest.mark.spark
def test_all_that_only_kproxy_and_spark_can_tell(spark: SparkSession, tmp_path: Path) -> None:
    with fake_cluster() as fake:
        pipeline = pipeline_at(fake.bootstrap, tmp_path)
        faults = Faults(str(pipeline.file))
        check_live(pipeline, faults)
        with pytest.raises(FileError) as raised:
            faults.check()
        lines = [problem.removeprefix(f"{tmp_path}/p.yaml:") for problem in raised.value.problems]
        # what reads a faulty step (after, and the sink of it) is not reported as well
        assert len(lines) == 9, lines
        assert lines[0].startswith("9: steps[1].sql: step 'totals': [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
        assert lines[1].startswith("11: steps[2].python: step 'called': [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
        assert lines[1].endswith("(live_check_steps.py:1)")
        assert lines[2].startswith("16: steps[4].sql: step 'typo': [PARSE_SYNTAX_ERROR]")
        assert lines[3].startswith("18: sinks[0]: topic 'ordres' does not exist")
        assert lines[4].startswith("19: sinks[1]: [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
        assert lines[5].startswith("24: spark.spark.sql.shuffle.partitions: 'many': ")
        assert lines[6].endswith("did you mean 'spark.sql.shuffle.partitions'?")
        assert lines[7].startswith("26: spark.spark.executor.memory: '2q': ")
        assert lines[8].startswith("27: spark.spark.master: 'locale' is no master")


@pytest.mark.spark
def test_a_pipeline_that_is_in_order(spark: SparkSession, tmp_path: Path) -> None:
    text = TEXT.split("spark:")[0]
    for wrong, right in (
        ("ordres", "orders-b"),
        ("SELECT shop", "SELECT line"),
        ("nothing", "line"),
        ("SELEC ", "SELECT "),
    ):
        text = text.replace(wrong, right)
    text = text.replace("lime", "line").replace(":called", ":fine")
    with fake_cluster() as fake, ClusterClient(fake.bootstrap) as client:
        client.create_topic("orders-b", 1)
        faults = Faults("p.yaml")
        check_live(pipeline_at(fake.bootstrap, tmp_path, text), faults)
        assert faults.found == []


@pytest.mark.spark
def test_faults_of_the_file_and_of_the_rest_are_reported_at_once(spark: SparkSession, tmp_path: Path) -> None:
    text = TEXT.split("spark:")[0].replace("  lines: {topics: [orders]}", "  lines: {topics: [orders]}\n  shops: {}")
    text = text.replace("SELECT shop FROM parsed", "SELECT shop FROM shops").replace(":called", ":fine")
    with fake_cluster() as fake:
        file = write(tmp_path, text.replace("BOOTSTRAP", fake.bootstrap))
        (tmp_path / "live_check_steps.py").write_text(STEPS)
        with ClusterClient(fake.bootstrap) as client:
            client.create_topic("orders", 1)
            client.create_topic("orders-clean", 1)
        faults = Faults("p.yaml")
        check_live(read(file, {}, faults), faults)
    found = sorted((fault.place.line, fault.text.partition(":")[0].partition("]")[0]) for fault in faults.found)
    assert found == [
        (5, "must have one of topics, pattern, parquet"),
        (17, "step 'typo'"),
        (19, "topic 'ordres' does not exist; did you mean 'orders'?"),
        (20, "[UNRESOLVED_COLUMN.WITH_SUGGESTION"),
    ]
