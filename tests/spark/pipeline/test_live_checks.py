from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kproxy.config.config_faults import FileError
from kproxy.spark.pipeline.live_checks import check_live, topic_faults
from tests.spark.fake_cluster import fake_cluster
from tests.spark.pipeline.files import loaded

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
sinks:
  - {topic: ordres, from: parsed, value: line}
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


def test_topics_that_do_not_exist(tmp_path: Path) -> None:
    with fake_cluster() as fake:
        with fake.client() as client:
            client.create_topic("orders", 1)
        pipeline = loaded(tmp_path, TEXT.replace("BOOTSTRAP", fake.bootstrap))
        faults = [(place.line, text) for place, text in topic_faults(pipeline)]
    assert faults == [(11, "topic 'ordres' does not exist; did you mean 'orders'?")]


@pytest.mark.spark
def test_all_that_only_kproxy_and_spark_can_tell(spark: SparkSession, tmp_path: Path) -> None:
    with fake_cluster() as fake:
        with fake.client() as client:
            client.create_topic("orders", 1)
        with pytest.raises(FileError) as raised:
            check_live(loaded(tmp_path, TEXT.replace("BOOTSTRAP", fake.bootstrap)))
        lines = [problem.removeprefix(f"{tmp_path}/p.yaml:") for problem in raised.value.problems]
        assert len(lines) == 6, lines
        assert lines[0].startswith("9: steps[1].sql: step 'totals': [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
        assert lines[1].startswith("11: sinks[0]: topic 'ordres' does not exist")
        assert lines[2].startswith("15: spark.spark.sql.shuffle.partitions: 'many': ")
        assert lines[3].endswith("did you mean 'spark.sql.shuffle.partitions'?")
        assert lines[4].startswith("17: spark.spark.executor.memory: '2q': ")
        assert lines[5].startswith("18: spark.spark.master: 'locale' is no master")
        fine = TEXT.replace("ordres", "bills").replace("SELECT shop", "SELECT line").split("spark:")[0]
        with fake.client() as client:
            client.create_topic("bills", 1)
        check_live(loaded(tmp_path, fine.replace("BOOTSTRAP", fake.bootstrap)))
