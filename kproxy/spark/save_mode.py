"""``df.write.format("kproxy").save()`` without a mode appends, as it does with Spark's own Kafka sink.

Spark gives its built-in sinks the mode ``errorifexists`` and refuses it for data sources in Python before it asks them.
So the mode is set where ``save`` is called; Spark Connect has a writer of its own, whose mode is unset until then.
"""

from functools import wraps
from importlib import import_module
from typing import Any, Final

from pyspark.sql.utils import is_remote

_ERROR_IF_EXISTS: Final = ("error", "errorifexists")


def append_by_default(format_name: str) -> None:
    """Have ``DataFrameWriter.save`` append to this format where no other mode is set; harmless when called again."""
    writer: Any = import_module(f"pyspark.sql.{'connect.' if is_remote() else ''}readwriter").DataFrameWriter
    save = writer.save
    if hasattr(save, "__wrapped__"):
        return

    @wraps(save)
    def appending(
        self: Any,
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
        source, wanted = _source_and_mode(self)
        if source == format_name and wanted.lower() in _ERROR_IF_EXISTS:
            self.mode("append")
        save(self, path, partitionBy=partitionBy, **options)

    writer.save = appending


def _source_and_mode(writer: Any) -> tuple[str | None, str]:
    if hasattr(writer, "_jwrite"):
        return writer._jwrite.source(), writer._jwrite.curmode().name()
    return writer._write.source, writer._write.mode or _ERROR_IF_EXISTS[0]
