"""The data source ``kproxy``: what Spark asks for by ``format("kproxy")``."""

from importlib import import_module
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class KproxyDataSource(DataSource):
    """Topics as tables and streams. An instance is made for each query, and travels between processes."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kproxy"

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        """The writer of ``df.write``; errors as ``kproxy.spark.sink`` says."""
        sink = import_module("kproxy.spark.sink")
        return cast("DataSourceWriter", sink.batch_writer(self.options, schema))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        """The writer of ``df.writeStream``; errors as ``kproxy.spark.sink`` says."""
        sink = import_module("kproxy.spark.sink")
        return cast("DataSourceStreamWriter", sink.stream_writer(self.options, schema))
