"""Spark reads and writes Kafka through kproxy exactly once: data source ``kproxy``, pipelines, audit.

Needs the extra ``kproxy[spark]``. ``register(spark)`` makes the format ``kproxy`` known to a session.
"""

from typing import TYPE_CHECKING

from kproxy.spark.source import KproxyDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KproxyDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Makes ``format("kproxy")`` known to this session, for batch and streaming, reading and writing."""
    spark.dataSource.register(KproxyDataSource)
