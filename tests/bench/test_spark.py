"""The case of Spark: both connectors are measured and counted, and a row says whether its goal is met."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.spark import Course, growth, rounds, sinks, source_steps, sources, steps
from bench.spark_stage import Stage
from kproxy.testing.kafka import RealKafka
from verification.copiers.processes import Kproxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.kafka
@pytest.mark.spark
def test_both_connectors_are_measured(spark: "SparkSession", kafka: RealKafka, tmp_path: Path) -> None:
    told: list[str] = []
    control = tmp_path / "control.sock"
    with Kproxy("bench", kafka.bootstrap, tmp_path, "--control-socket", str(control)) as kproxy:
        kproxy.wait_ready()
        stage = Stage(spark, kafka.bootstrap, kproxy.bootstrap, control, tmp_path)
        course = Course(1_000, 1)
        with stage.topic("bench-test") as topic:
            found = [*sinks(stage, course, topic, told.append), *sources(stage, course, topic, told.append)]
    assert len(told) == 6
    figures = {figure.case.partition(" records")[0]: figure for figure in found}
    for case in ("Spark sink, 1,000", "the same, 103 B a record", "Spark source, count, 1,000"):
        assert (figures[case].direct or 0) > 0
        assert (figures[case].kproxy or 0) > 0
    for what in ("sink", "count", "values"):
        assert figures[f"Python worker at most, {what}, 1,000"].met


def test_how_speeds_change_with_the_size() -> None:
    small, large = Course(1_000, 3), Course(10_000, 1)
    for what in ("sink", "count", "values", "audit"):
        for way in ("kafka", "kproxy"):
            if (what, way) != ("audit", "kafka"):
                small.add(what, way, 3.0)
                large.add(what, way, 20.0 if way == "kproxy" else 10.0)
    found = {figure.case.partition(":")[0]: figure for figure in growth(small, large)}
    assert (found["sink"].direct, found["sink"].kproxy) == (1.0, 0.5)
    # An audit runs once.
    assert (found["audit"].direct, found["audit"].kproxy) == (None, 1.5)


def test_as_many_steps_as_are_requested() -> None:
    assert (rounds(1_000_000), rounds(10_000_000)) == (3, 2)
    assert steps([1_000_000]) == 2 + 3 * 2 * 3 + 1
    assert source_steps([2_000_000, 10_000_000]) == 2 + 1 + 3 * 2 * 2 + 1 + 2 * 2 * 2
