"""The case of micro-batches: both connectors are measured, and rows say whether their goals are met."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.spark_batches import measured
from bench.spark_stage import Stage
from kproxy.testing.kafka import RealKafka
from verification.copiers.processes import Kproxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.kafka
@pytest.mark.spark
def test_both_connectors_are_measured(spark: "SparkSession", kafka: RealKafka, tmp_path: Path) -> None:
    control = tmp_path / "control.sock"
    with Kproxy("bench", kafka.bootstrap, tmp_path, "--control-socket", str(control)) as kproxy:
        kproxy.wait_ready()
        stage = Stage(spark, kafka.bootstrap, kproxy.bootstrap, control, tmp_path, {"kproxy": kproxy.pid})
        found = {figure.case: figure for figure in measured(stage, rounds=1, warm=1, batches=3)}
    for case in ("micro-batch of 1,000 records, p50", "CPU of Spark, micro-batches of 1,000"):
        assert (found[case].direct or 0) > 0
        assert (found[case].kproxy or 0) > 0
        assert found[case].met is not None
    assert (found["CPU of kproxy, micro-batches of 1,000"].kproxy or 0) > 0
