"""The cells of docs/spark.md and docs/spark-connectors.md, as they stand there, on a real Kafka, kproxy and Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kproxy.testing.kafka import RealKafka
from tests.spark.pages import DOCS, cells, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.parametrize(("page", "section"), [("spark.md", "Walk-through"), ("spark-connectors.md", None)])
def test_a_page_runs_as_it_stands(
    page: str,
    section: str | None,
    spark: "SparkSession",
    kafka: RealKafka,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    what = cells(DOCS / page, section)
    assert len(what) >= 5
    assert any(cell.prints for cell in what)
    run(DOCS / page, what)
