"""``df.write.format("kproxy").save()`` without a mode appends, as it does with Spark's own Kafka sink.

Spark gives its built-in sinks the mode ``errorifexists`` and refuses it for data sources in Python before it asks them.
So the mode is set where ``save`` is called.
"""

from functools import wraps
from typing import Any

from pyspark.sql import DataFrameWriter


def append_by_default(format_name: str) -> None:
    """Have ``DataFrameWriter.save`` append to this format where no other mode is set; harmless when called again."""
    save = DataFrameWriter.save
    if hasattr(save, "__wrapped__"):
        return

    @wraps(save)
    def appending(
        self: DataFrameWriter,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,
        **options: Any,
    ) -> None:
        if format is not None:
            self.format(format)
        if mode is not None:
            self.mode(mode)
        writer = self._jwrite
        if writer.source() == format_name and writer.curmode().name() == "ErrorIfExists":
            self.mode("append")
        save(self, path, partitionBy=partitionBy, **options)

    DataFrameWriter.save = appending  # type: ignore[method-assign]
