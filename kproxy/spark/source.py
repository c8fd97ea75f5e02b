"""The data source ``kproxy``: what Spark asks for by ``format("kproxy")``."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema

from kproxy.spark import batch_rows, columns
from kproxy.spark.read_options import ReadOptions, read_options
from kproxy.spark.spark_errors import OptionError, cause_first
from kproxy.spark.stream_reader import StreamReader
from kproxy.spark.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamWriter, DataSourceWriter, InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType


class KproxyDataSource(DataSource):
    """Topics as tables and streams. An instance is made for each query, and travels between processes."""

    @classmethod
    def name(cls) -> str:
        return "kproxy"

    @cause_first()
    def schema(self) -> "StructType":
        """The columns of Spark's Kafka source, or one row for each record batch. Raises OptionError."""
        options = read_options(self.options)
        if options.as_batches:
            return from_arrow_schema(batch_rows.SCHEMA)
        return from_arrow_schema(columns.SCHEMA_WITH_HEADERS if options.with_headers else columns.SCHEMA)

    @cause_first()
    def reader(self, schema: "StructType") -> "DataSourceReader":
        """The reader of ``spark.read``. Raises OptionError."""
        return TableReader(self._read_options(schema))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        """The reader of ``spark.readStream``; for wrong options one that raises OptionError.

        If this method raised it, PySpark's worker would report in its place that it has no reader to stop.
        """
        try:
            return StreamReader(self._read_options(schema))
        except OptionError as error:
            return _RefusedReader(error)

    @cause_first()
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        """The writer of ``df.write``; errors as ``kproxy.spark.sink`` says, and OptionError for mode overwrite."""
        if overwrite:
            raise OptionError("mode: overwrite is not possible, topics are only appended to; valid: append")
        from kproxy.spark.sink import batch_writer

        return batch_writer(self.options, schema)

    @cause_first()
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        """The writer of ``df.writeStream``; errors as of ``writer``, and OptionError for the mode complete."""
        from kproxy.spark.sink import stream_writer

        return stream_writer(self.options, schema, "complete" if overwrite else "append")

    def _read_options(self, schema: "StructType") -> ReadOptions:
        if schema != self.schema():
            raise OptionError("the columns are fixed; leave schema(...) out and select what is needed")
        return read_options(self.options)


class _RefusedReader(DataSourceStreamReader):
    """Raises an error as soon as Spark asks where the stream begins or ends."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    @cause_first()
    def initialOffset(self) -> dict[str, str]:
        raise self._error

    @cause_first()
    def latestOffset(self, start: dict[str, object], limit: "ReadLimit") -> dict[str, object]:
        raise self._error

    def read(self, partition: "InputPartition") -> "Iterator[tuple[object, ...]]":
        raise self._error
