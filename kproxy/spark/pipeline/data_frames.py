"""DataFrames of sources and steps, each a table by its name."""

import importlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kproxy.config.config_faults import Faults, Location
from kproxy.spark.pipeline.data_source import source_options
from kproxy.spark.pipeline.pipeline_errors import one_line
from kproxy.spark.pipeline.pipeline_model import (
    Kafka,
    ParquetSource,
    Pipeline,
    PythonStep,
    Source,
    SqlStep,
    Step,
    TopicSource,
    Watermark,
)
from kproxy.spark.pipeline.python_steps import StepError

Frames = dict[str, DataFrame]
"""By name in lower case, as Spark finds tables."""


def build(pipeline: Pipeline, spark: SparkSession, faults: Faults) -> Frames:
    """All of them, in the order of the file, but those that Spark rejects and the steps that read these."""
    frames: Frames = {}
    for source in pipeline.sources:
        with located_errors(faults, source.place):
            _name(frames, source.name, _source(pipeline, source, spark))
    for step in pipeline.steps:
        if all(name.lower() in frames for name in step.inputs):
            with located_errors(faults, step.place, f"step {step.name!r}: "):
                _name(frames, step.name, _step(step, frames, spark))
    return frames


@contextmanager
def located_errors(faults: Faults, place: Location, prefix: str = "") -> Iterator[None]:
    """An error of Spark or of a step's function ends the block, and is one of the faults of the file."""
    try:
        yield
    except (PySparkException, StepError) as error:
        faults.add(place, f"{prefix}{one_line(error)}")


def _name(frames: Frames, name: str, frame: DataFrame) -> None:
    frame.createOrReplaceTempView(name)
    frames[name.lower()] = frame


def _source(pipeline: Pipeline, source: Source, spark: SparkSession) -> DataFrame:
    if isinstance(source, ParquetSource):
        return _parquet(source, spark)
    assert pipeline.kafka is not None
    return _topics(source, pipeline.kafka, spark)


def _topics(source: TopicSource, kafka: Kafka, spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("kproxy").options(**source_options(source, kafka))
    return _watermarked(reader.load(), source.watermark)


def _parquet(source: ParquetSource, spark: SparkSession) -> DataFrame:
    if source.static:
        reader = spark.read if source.schema is None else spark.read.schema(source.schema)
        return reader.parquet(source.path)
    stream = spark.readStream.schema(source.schema or spark.read.parquet(source.path).schema)
    if source.max_files_per_trigger is not None:
        stream = stream.option("maxFilesPerTrigger", str(source.max_files_per_trigger))
    return _watermarked(stream.parquet(source.path), source.watermark)


def _step(step: Step, frames: Frames, spark: SparkSession) -> DataFrame:
    found = spark.sql(step.sql) if isinstance(step, SqlStep) else _called(step, frames)
    return _watermarked(found, step.watermark)


def _called(step: PythonStep, frames: Frames) -> DataFrame:
    name = f"{step.module}:{step.function}"
    try:
        function = getattr(importlib.import_module(step.module), step.function)
        found = function(**{name: frames[name.lower()] for name in step.inputs})
    except PySparkException as error:
        raise StepError(f"{one_line(error)}{_line(error, step)}") from error
    except Exception as error:
        # It is a user's, and may raise anything.
        raise StepError(f"{name} raised {type(error).__name__}: {error}{_line(error, step)}") from error
    if not isinstance(found, DataFrame):
        raise StepError(f"{name} gave {type(found).__name__}, not a DataFrame")
    return found


def _line(error: Exception, step: PythonStep) -> str:
    """The line of the step's module that an error came from."""
    lines = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [(path, line) for path, line in lines if path.stem == step.module.rpartition(".")[2]]
    return f" ({own[-1][0].name}:{own[-1][1]})" if own else ""


def _watermarked(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)
