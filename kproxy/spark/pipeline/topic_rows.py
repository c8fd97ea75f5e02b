"""The rows of all topic sinks as one DataFrame: one query, and so one transaction for each of its batches."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from kproxy.config.config_faults import Faults
from kproxy.spark.pipeline.data_frames import Frames, located_errors
from kproxy.spark.pipeline.pipeline_model import Pipeline, TopicSink
from kproxy.spark.pipeline.python_steps import StepError

ROWS = "rows"
"""The metric that counts the rows of each sink in a batch: a column for each topic, or ``rows``."""

_HEADERS = "array<struct<key:string,value:binary>>"


def topic_rows(pipeline: Pipeline, frames: Frames, faults: Faults) -> DataFrame | None:
    """Columns topic, key, value, and headers and partition if any sink has them; None if a sink cannot be written."""
    sinks = [sink for sink in pipeline.topic_sinks if sink.step.lower() in frames]
    extra = [name for name in ("headers", "partition") if any(_has(sink, frames, name) for sink in sinks)]
    each = []
    for sink in sinks:
        with located_errors(faults, sink.place):
            each.append(_rows(sink, frames, extra))
    if len(each) < len(pipeline.topic_sinks):
        return None
    counts = [sql.count_if(sql.col("topic") == sink.topic).alias(sink.topic) for sink in sinks]
    return reduce(DataFrame.unionByName, each).observe(ROWS, *counts)


def _rows(sink: TopicSink, frames: Frames, extra: list[str]) -> DataFrame:
    frame = frames[sink.step.lower()]
    if not _has(sink, frames, "value"):
        raise StepError(f"{sink.step!r} has no column value: give 'value: to_json(struct(*))' or another expression")
    names = ["key", "value", *extra]
    given = frame.select(*(_column(sink, frames, name).alias(name) for name in names))
    for name in ("key", "value"):
        _check_type(name, given.schema[name].dataType)
    columns = [_bytes(name, given.schema[name].dataType) for name in ("key", "value")]
    columns += [sql.col(name).cast(_HEADERS if name == "headers" else "int").alias(name) for name in extra]
    return given.select(sql.lit(sink.topic).alias("topic"), *columns)


def _has(sink: TopicSink, frames: Frames, name: str) -> bool:
    return name in sink.expressions or name in map(str.lower, frames[sink.step.lower()].columns)


def _column(sink: TopicSink, frames: Frames, name: str) -> Column:
    if name in sink.expressions:
        return sql.expr(sink.expressions[name])
    return sql.col(name) if _has(sink, frames, name) else sql.lit(None)


def _check_type(name: str, kind: DataType) -> None:
    if isinstance(kind, (ArrayType, MapType, StructType)):
        raise StepError(f"{name} is of type {kind.simpleString()}: make text of it, as with to_json")


def _bytes(name: str, kind: DataType) -> Column:
    """Numbers and times as text: their bytes would be Spark's own."""
    column = sql.col(name)
    return (column if isinstance(kind, BinaryType) else column.cast("string").cast("binary")).alias(name)
