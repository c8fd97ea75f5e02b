"""The queries of a pipeline: one for all topics together, one for each parquet directory."""

import hashlib
import re
from typing import NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kproxy.config.config_faults import Faults, Location
from kproxy.spark.pipeline.data_frames import build, located_errors
from kproxy.spark.pipeline.data_source import sink_options
from kproxy.spark.pipeline.parquet_batches import ParquetBatches
from kproxy.spark.pipeline.pipeline_errors import PipelineFailed
from kproxy.spark.pipeline.pipeline_model import ParquetSink, Pipeline
from kproxy.spark.pipeline.python_steps import StepError
from kproxy.spark.pipeline.topic_rows import ROWS, topic_rows


class Running(NamedTuple):
    """A query, by the name that people see."""

    name: str
    query: StreamingQuery


class _Plan(NamedTuple):
    """A query before its start; ``folder`` is its directory within the checkpoint."""

    place: Location
    name: str
    folder: str
    writer: DataStreamWriter


def start(pipeline: Pipeline, spark: SparkSession) -> list[Running]:
    """Starts all; those that run are stopped if one can't. FileError has all that Spark has against the file.

    PipelineFailed if kproxy or its topics are not as the queries need them.
    """
    running: list[Running] = []
    faults = Faults(str(pipeline.file))
    planned = plans(pipeline, spark, faults)
    faults.check()
    try:
        for plan in planned:
            with located_errors(faults, plan.place, f"{plan.name}: "):
                running.append(Running(plan.name, _begin(pipeline, plan)))
        faults.check()
    except BaseException:
        for _, query in running:
            query.stop()
        raise
    return running


def plans(pipeline: Pipeline, spark: SparkSession, faults: Faults) -> list[_Plan]:
    """The queries before their start; ``faults`` gets all that Spark has against sources, steps and sinks."""
    frames = build(pipeline, spark, faults)
    found = []
    rows = topic_rows(pipeline, frames, faults) if pipeline.topic_sinks else None
    if rows is not None:
        with located_errors(faults, pipeline.topic_sinks[0].place):
            found.append(_to_topics(pipeline, rows))
    for sink in pipeline.parquet_sinks:
        if sink.step.lower() in frames:
            with located_errors(faults, sink.place):
                found.append(_to_parquet(sink, frames[sink.step.lower()]))
    return found


def checkpoint_name(path: str) -> str:
    """The directory, within the checkpoint, of the query that writes to a parquet directory."""
    last = re.sub(r"[^A-Za-z0-9_-]+", "-", path.rstrip("/").rpartition("/")[2])
    return f"parquet-{last}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def _begin(pipeline: Pipeline, plan: _Plan) -> StreamingQuery:
    writer = plan.writer.outputMode("append").queryName(f"{pipeline.name}: {plan.name}")
    writer = writer.option("checkpointLocation", f"{pipeline.checkpoint.rstrip('/')}/{plan.folder}")
    every = {"availableNow": True} if pipeline.every is None else {"processingTime": pipeline.every}
    try:
        return writer.trigger(**every).start()
    except StreamingQueryException as error:  # no fault of the file: kproxy is unreachable, say
        raise PipelineFailed(f"{plan.name}: {error}") from None


def _to_topics(pipeline: Pipeline, rows: DataFrame) -> _Plan:
    assert pipeline.kafka is not None
    _check_streaming(rows)
    writer = rows.writeStream.format("kproxy").options(**sink_options(pipeline.kafka))
    return _Plan(pipeline.topic_sinks[0].place, "topics", "topics", writer)


def _to_parquet(sink: ParquetSink, frame: DataFrame) -> _Plan:
    _check_streaming(frame)
    rows = frame.observe(ROWS, sql.count(sql.lit(1)).alias(ROWS))
    writer = rows.writeStream.foreachBatch(ParquetBatches(sink.path, sink.partition_by))
    return _Plan(sink.place, sink.path, checkpoint_name(sink.path), writer)


def _check_streaming(frame: DataFrame) -> None:
    if not frame.isStreaming:
        raise StepError("comes from static sources alone: there is nothing that would begin a batch")
