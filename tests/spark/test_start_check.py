"""``start()`` in a Spark that keeps the settings of streams elsewhere; test_spark_errors.py has all other cases."""

from inspect import unwrap
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kproxy.spark.start_check import check_at_start


class OtherWriter:
    """Spark's own, whose fields have other names."""

    def getClass(self) -> "OtherWriter":
        return self

    def getDeclaredField(self, name: str) -> None:
        raise Py4JError(f"NoSuchFieldException: {name}")

    def start(self) -> str:
        return "started"


def test_a_stream_starts_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataStreamWriter, "_sq", lambda _, query: query)
    monkeypatch.setattr(DataStreamWriter, "start", unwrap(DataStreamWriter.start))
    check_at_start("kproxy", lambda *_: pytest.fail("there is nothing to check"))
    writer: Any = object.__new__(DataStreamWriter)
    writer._jwrite = OtherWriter()
    assert writer.start() == "started"
