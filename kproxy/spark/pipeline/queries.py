"""The queries of a pipeline: one for all topics together, one for each parquet directory."""

import hashlib
import re
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kproxy.config.config_faults import Fault, FileError, Location
from kproxy.spark.pipeline.data_frames import Frames, located_errors
from kproxy.spark.pipeline.data_source import sink_options
from kproxy.spark.pipeline.parquet_batches import ParquetBatches
from kproxy.spark.pipeline.pipeline_model import ParquetSink, Pipeline
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


def start(pipeline: Pipeline, frames: Frames) -> list[Running]:
    """Starts all; those that run are stopped if one can't. FileError says what Spark has against it."""
    running: list[Running] = []
    try:
        for plan in plans(pipeline, frames):
            with located_errors(pipeline, plan.place, f"{plan.name}: "):
                running.append(Running(plan.name, _begin(pipeline, plan)))
    except BaseException:
        for _, query in running:
            query.stop()
        raise
    return running


def plans(pipeline: Pipeline, frames: Frames) -> list[_Plan]:
    """All queries before their start. FileError says what Spark has against one."""
    found = [_to_parquet(pipeline, sink, frames) for sink in pipeline.parquet_sinks]
    return [_to_topics(pipeline, frames), *found] if pipeline.topic_sinks else found


def checkpoint_name(path: str) -> str:
    """The directory, within the checkpoint, of the query that writes to a parquet directory."""
    last = re.sub(r"[^A-Za-z0-9_-]+", "-", path.rstrip("/").rpartition("/")[2])
    return f"parquet-{last}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def _begin(pipeline: Pipeline, plan: _Plan) -> StreamingQuery:
    writer = plan.writer.outputMode("append").queryName(f"{pipeline.name}: {plan.name}")
    writer = writer.option("checkpointLocation", f"{pipeline.checkpoint.rstrip('/')}/{plan.folder}")
    if pipeline.every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=pipeline.every).start()


def _to_topics(pipeline: Pipeline, frames: Frames) -> _Plan:
    kafka, rows, place = pipeline.kafka, topic_rows(pipeline, frames), pipeline.topic_sinks[0].place
    assert kafka is not None
    _check_streaming(pipeline, place, rows)
    return _Plan(place, "topics", "topics", rows.writeStream.format("kproxy").options(**sink_options(kafka)))


def _to_parquet(pipeline: Pipeline, sink: ParquetSink, frames: Frames) -> _Plan:
    frame = frames[sink.step.lower()].observe(ROWS, sql.count(sql.lit(1)).alias(ROWS))
    _check_streaming(pipeline, sink.place, frame)
    writer = frame.writeStream.foreachBatch(ParquetBatches(sink.path, sink.partition_by))
    return _Plan(sink.place, sink.path, checkpoint_name(sink.path), writer)


def _check_streaming(pipeline: Pipeline, place: Location, frame: DataFrame) -> None:
    if not frame.isStreaming:
        text = "comes from static sources alone: there is nothing that would begin a batch"
        raise FileError(str(pipeline.file), [Fault(place, text)])
