"""``save()`` without a mode, on writers whose Spark is not there."""

from typing import Any

import pytest
from pyspark.sql import DataFrameWriter

from kproxy.spark.save_mode import append_by_default


class JavaWriter:
    """Spark's own, as far as ``save`` goes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._mode = "ErrorIfExists"
        self.saved: list[str] = []

    def source(self) -> str:
        return self._source

    def curmode(self) -> "JavaWriter":
        return self

    def name(self) -> str:
        return self._mode

    def mode(self, name: str) -> "JavaWriter":
        self._mode = name
        return self

    def save(self) -> None:
        self.saved.append(self._mode)


@pytest.mark.parametrize(
    ("source", "mode", "saved"),
    [
        ("kproxy", None, "append"),
        ("kproxy", "append", "append"),
        ("kproxy", "errorifexists", "append"),
        ("kproxy", "overwrite", "overwrite"),
        ("json", None, "ErrorIfExists"),
    ],
)
def test_the_mode_of_a_write(source: str, mode: str | None, saved: str) -> None:
    append_by_default("kproxy")
    append_by_default("kproxy")
    writer: Any = object.__new__(DataFrameWriter)
    writer._jwrite = java = JavaWriter(source)
    writer.save(mode=mode)
    assert java.saved == [saved]
