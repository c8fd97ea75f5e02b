from pathlib import Path
from typing import Any

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.config import StartupError
from kproxy.spark.audit.audit_size import MOST_HERE, choose_engine, offsets_to_read
from kproxy.spark.audit.audit_state import PartitionProgress, State, save_state
from kproxy.spark.audit.offset_spans import LOG
from kproxy.spark.audit.request import AUTO, DUCKDB, SPARK, Request
from tests.spark.fake_cluster import fake_cluster

REQUEST = Request("kproxy:9092", None, "orders", Path("audits"))


def test_what_an_audit_has_to_read(tmp_path: Path) -> None:
    with fake_cluster() as fake, fake.client() as client:
        for topic in ("orders", "bills", LOG):
            client.create_topic(topic, 2)
            for _ in range(3):
                client.produce(topic, 1, build_batch([Record(0, 1000, None, b"v"), Record(1, 2000, None, b"w")]))
        request = Request(fake.bootstrap, None, "orders", tmp_path)
        assert offsets_to_read(request) == 6 + 6
        assert offsets_to_read(request._replace(topics=".*")) == 6 + 12
        save_state(tmp_path, State("former", (PartitionProgress("orders", 1, 5, 4),)))
        assert offsets_to_read(request) == 6 + 2
        assert offsets_to_read(request._replace(fresh=True)) == 6 + 6
        with pytest.raises(StartupError, match="no such topic: order;"):
            offsets_to_read(request._replace(topics="order"))


@pytest.mark.parametrize(
    ("offsets", "asked", "engine"),
    [
        (MOST_HERE, {}, DUCKDB),
        (MOST_HERE + 1, {}, SPARK),
        (MOST_HERE + 1, {"engine": DUCKDB}, DUCKDB),
        (1, {"engine": SPARK}, SPARK),
        (1, {"master": "local[2]"}, SPARK),
        (1, {"conf": (("spark.executor.memory", "2g"),)}, SPARK),
        (1, {"key": "string(key)"}, DUCKDB),
        (1, {"key": "get_json_object(string(value), '$.id')"}, SPARK),
    ],
)
def test_which_engine_an_audit_has(
    monkeypatch: pytest.MonkeyPatch, offsets: int, asked: dict[str, Any], engine: str
) -> None:
    monkeypatch.setattr("kproxy.spark.audit.audit_size.offsets_to_read", lambda request: offsets)
    assert choose_engine(REQUEST._replace(**asked)) == engine


def test_under_spark_submit_an_audit_is_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert REQUEST.engine == AUTO
    assert choose_engine(REQUEST) == SPARK


def test_a_key_that_only_spark_understands() -> None:
    with pytest.raises(StartupError, match=r"--key 'upper\(key\)' needs --engine spark; valid without Spark: key,"):
        choose_engine(REQUEST._replace(engine=DUCKDB, key="upper(key)"))
