"""``start()`` of a stream that is written to this format refuses what its first micro-batch would refuse.

Spark asks a sink in Python in the query's own thread, after ``start()`` has returned. So the sink is asked where
``start`` is called. With Spark Connect that is not done, for the options name addresses and files of the server.
"""

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kproxy.spark.spark_errors import KafkaError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

#: Takes the options of a stream, its columns and its output mode, in lower case. Raises OptionError, KafkaError.
Check: TypeAlias = "Callable[[dict[str, str], StructType, str], None]"


def check_at_start(format_name: str, check: Check) -> None:
    """Have ``DataStreamWriter.start`` ask ``check`` for streams to this format; harmless when called again.

    Its errors become StreamingQueryException, as those of a running query.
    """
    writer: Any = DataStreamWriter
    start = writer.start
    if hasattr(start, "__wrapped__"):
        return

    @wraps(start)
    def checked(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Any:
        self.options(**options)
        for setter, value in ((self.format, format), (self.outputMode, outputMode), (self.queryName, queryName)):
            if value is not None:
                setter(value)
        asked = _asked(self)
        if asked is not None and asked.source == format_name:
            try:
                check(asked.options, self._df.schema, asked.mode)
            except (OptionError, KafkaError) as error:
                raise StreamingQueryException(str(error)) from None
        return start(self, path, partitionBy=partitionBy)

    writer.start = checked


class _Asked(NamedTuple):
    """The settings of a stream's writer."""

    source: str
    mode: str
    options: dict[str, str]


def _asked(writer: Any) -> _Asked | None:
    """The settings of a writer, from private fields, for no method returns them; None in a Spark without the fields."""

    def field(name: str) -> Any:
        found = java.getClass().getDeclaredField(name)
        found.setAccessible(True)
        return found.get(java)

    java = writer._jwrite
    try:
        source, mode, options = field("source"), field("outputMode"), field("extraOptions")
    except Py4JError:
        return None
    converters = writer._spark._jvm.scala.jdk.javaapi.CollectionConverters
    return _Asked(source, mode.toString().lower(), dict(converters.asJava(options)))
