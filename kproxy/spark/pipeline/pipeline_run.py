"""Runs a pipeline to its end."""

from pyspark.sql import SparkSession

from kproxy.client import DEFAULT_SOCKET, ControlClient
from kproxy.config import StartupError
from kproxy.spark.pipeline.display import Display, choose
from kproxy.spark.pipeline.pipeline_model import Kafka, Pipeline
from kproxy.spark.pipeline.python_steps import module_files
from kproxy.spark.pipeline.queries import start
from kproxy.spark.pipeline.watch import Stop, on_signals, watch
from kproxy.spark.spark_session import spark_session


def run(pipeline: Pipeline, display: Display | None = None, stop: Stop | None = None) -> None:
    """Returns when all available records are written (availableNow), or when stopped, by ``stop`` or a signal.

    Raises StartupError if Spark or kproxy can't be reached, FileError for Spark's errors about the file, PipelineFailed
    if a query fails: the next run continues at the last committed batch.
    """
    stop = stop or Stop()
    with display or choose(json_lines=False) as shown:
        if pipeline.kafka is not None and pipeline.topic_sinks:
            _check_control(pipeline.kafka)
        shown.say("Spark starts")
        with spark_session(f"kproxy pipeline {pipeline.name}", pipeline.spark) as spark, on_signals(stop):
            add_modules(pipeline, spark)
            queries = start(pipeline, spark)
            shown.say(f"{pipeline.name} runs, {_pace(pipeline)}")
            watch(queries, shown, stop)


def add_modules(pipeline: Pipeline, spark: SparkSession) -> None:
    """Makes the modules of Python steps known to driver and tasks."""
    for path, names in pipeline.modules.items():
        # Where spark-submit has brought them to another machine they are there already.
        for file in module_files(path, names) if path.exists() else ():
            spark.sparkContext.addPyFile(str(file))


def _pace(pipeline: Pipeline) -> str:
    return "until all that is there now is written" if pipeline.every is None else f"a batch each {pipeline.every}"


def _check_control(kafka: Kafka) -> None:
    """Reports a kproxy that does not answer before half a minute of Spark's start is spent."""
    try:
        ControlClient(kafka.control_socket or DEFAULT_SOCKET, url=kafka.control_url, token_file=kafka.token_file).list(
            ["Ongoing"]
        )
    except OSError as error:
        raise StartupError(f"cannot read the token {kafka.token_file}: {error.strerror}") from None
    except ValueError as error:
        raise StartupError(f"kafka.control: {error}") from None
