from typing import Any

import pytest

from kproxy.spark import Upsert
from kproxy.spark.spark_errors import OptionError
from tests.spark.sink_samples import PLAIN


class Rows:
    """A DataFrame as far as an upsert goes: it remembers how it was written."""

    def __init__(self, query_id: str | None) -> None:
        self.query_id = query_id
        self.given: dict[str, str] = {}
        self.saved = 0

    @property
    def sparkSession(self) -> "Rows":
        return self

    sparkContext = write = sparkSession

    def getLocalProperty(self, name: str) -> str | None:
        return self.query_id if name == "sql.streaming.queryId" else None

    def format(self, name: str) -> "Rows":
        return self.option("format", name)

    def options(self, **given: str) -> "Rows":
        self.given |= given
        return self

    def option(self, name: str, value: str) -> "Rows":
        return self.options(**{name: value})

    def mode(self, name: str) -> "Rows":
        return self.option("mode", name)

    def save(self) -> None:
        self.saved += 1


def test_a_batch_has_the_number_of_its_query() -> None:
    rows: Any = Rows("q-1")
    Upsert(PLAIN)(rows, 7)
    assert rows.given == {**PLAIN, "format": "kproxy", "mode": "append", "batch.id": "q-1/7"}
    assert rows.saved == 1


def test_it_is_for_a_streaming_query() -> None:
    rows: Any = Rows(None)
    with pytest.raises(RuntimeError, match="foreachBatch of a streaming query"):
        Upsert(PLAIN)(rows, 7)
    assert not rows.saved


def test_with_spark_connect_it_needs_the_checkpoint_before_the_query_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(OptionError, match="checkpointLocation: with Spark Connect"):
        Upsert(PLAIN)
    Upsert(PLAIN | {"checkpointLocation": "/data/cp"})
