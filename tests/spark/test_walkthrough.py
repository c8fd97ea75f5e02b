"""The cells of pages about Spark in docs/, on a real Kafka, kproxy and Spark."""

import tempfile
from typing import TYPE_CHECKING

import pytest

from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import BROKER_PORTS, free_ports
from tests.spark.pages import DOCS, cells, run
from tests.support.schema_registry import schema_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.parametrize(
    ("page", "section"), [("spark.md", "Walk-through"), ("spark-connectors.md", None), ("spark-registry.md", None)]
)
def test_a_page_runs_as_it_stands(
    page: str,
    section: str | None,
    spark: "SparkSession",
    kafka: RealKafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    # an ordinary kproxy, but on ports that nobody else has
    listen, http, first, *_, last = free_ports(2 + BROKER_PORTS)
    monkeypatch.setenv("KPROXY_LISTEN", f"127.0.0.1:{listen}")
    monkeypatch.setenv("KPROXY_HTTP", f"127.0.0.1:{http}")
    monkeypatch.setenv("KPROXY_BROKER_PORTS", f"{first}-{last}")
    what = cells(DOCS / page, section)
    assert len(what) >= 5
    assert any(cell.prints for cell in what)
    # the path of a Unix socket has 107 bytes
    with schema_registry() as registry, tempfile.TemporaryDirectory(prefix="page-") as short:
        monkeypatch.setenv("REGISTRY", registry)
        monkeypatch.setattr("tempfile.tempdir", short)
        run(DOCS / page, what)
