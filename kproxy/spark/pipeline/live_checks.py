"""Checks of a pipeline that need kproxy and Spark: topics, settings, SQL. No record is read or written."""

import re
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kproxy.config.config_faults import Faults, Location
from kproxy.config.values import suggest
from kproxy.spark.pipeline.data_source import source_options
from kproxy.spark.pipeline.pipeline_checks import faultless
from kproxy.spark.pipeline.pipeline_errors import one_line
from kproxy.spark.pipeline.pipeline_model import Pipeline, TopicSource
from kproxy.spark.pipeline.pipeline_run import add_modules
from kproxy.spark.pipeline.queries import plans
from kproxy.spark.read_options import read_options
from kproxy.spark.spark_errors import KafkaError, OptionError
from kproxy.spark.spark_session import QUICK, spark_session

_MASTER: Final = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|yarn|(spark|k8s|sc)://\S+|local-cluster\[.*\]")


def check_live(pipeline: Pipeline, faults: Faults) -> None:
    """Adds what kproxy and Spark have against the parts of the pipeline that have no fault yet.

    The functions of Python steps are called, as they say what columns there are. Raises StartupError if Spark can't
    be started.
    """
    readable = faultless(pipeline, faults)
    for place, text in topic_faults(readable):
        faults.add(place, text)
    with spark_session(f"kproxy pipeline check {pipeline.name}", {**QUICK, "spark.master": "local[1]"}) as spark:
        for place, text in setting_faults(readable, spark):
            faults.add(place, text)
        add_modules(readable, spark)
        plans(readable, spark, faults)


def topic_faults(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    """Topics that are read or written and do not exist, or why nobody can tell."""
    kafka = pipeline.kafka
    if kafka is None:
        return
    named = [
        (source.place, topic)
        for source in pipeline.sources
        if isinstance(source, TopicSource)
        for topic in source.topics
    ]
    named += [(sink.place, sink.topic) for sink in pipeline.topic_sinks]
    if not named:
        return
    probe = TopicSource("", kafka.place, (), ".*", "earliest", None, None, {})
    try:
        with read_options(source_options(probe, kafka)).open_cluster() as cluster:
            there = cluster.topics()
    except (KafkaError, OptionError) as error:
        yield kafka.place, f"{error}; --offline checks the file alone"
        return
    for place, topic in named:
        if topic not in there:
            yield place, f"topic {topic!r} does not exist{suggest(topic, sorted(there))}"


def setting_faults(pipeline: Pipeline, spark: SparkSession) -> Iterator[tuple[Location, str]]:
    """Settings that Spark does not know, though it knows one of nearly that name, and values that it does not take."""
    assert spark._jvm is not None
    entries = spark._jvm.org.apache.spark.internal.config.ConfigEntry
    known = [str(row[0]) for row in spark.sql("SET -v").collect()]
    for name, value in pipeline.spark.items():
        place, entry = pipeline.spark_places[name], entries.findEntry(name)
        if name == "spark.master" and _MASTER.fullmatch(value) is None:
            yield place, f"{value!r} is no master; valid: local[4], yarn, spark://HOST:PORT, k8s://HOST:PORT"
        elif entry is None and name.startswith("spark.sql."):
            near = suggest(name, known)
            if near:
                yield place, f"Spark does not know this setting{near}"
        elif entry is not None:
            try:
                entry.valueConverter().apply(value)
            except (PySparkException, Py4JJavaError) as error:
                yield place, f"{value!r}: {one_line(error)}"
