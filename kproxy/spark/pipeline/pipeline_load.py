"""Reads a pipeline's file, and reports at once all errors that can be found without Spark."""

from collections.abc import Mapping
from pathlib import Path

from kproxy.config.config_faults import Faults
from kproxy.config.section import Section, top_of
from kproxy.spark.pipeline.load_sources import read_source
from kproxy.spark.pipeline.load_steps import read_sink, read_step
from kproxy.spark.pipeline.pipeline_checks import check
from kproxy.spark.pipeline.pipeline_model import Kafka, Pipeline

_TRIGGERS = "must be 'availableNow', or 'continuous:' and an interval"


def load(file: Path, environ: Mapping[str, str]) -> Pipeline:
    """The pipeline of a file; ``environ`` gives its ``${NAME}``.

    Raises FileError with all faults, ConfigError if the file can't be read or is no YAML.
    """
    faults = Faults(str(file))
    pipeline = read(file, environ, faults)
    faults.check()
    return pipeline


def read(file: Path, environ: Mapping[str, str], faults: Faults) -> Pipeline:
    """The pipeline as far as it can be read; ``faults`` gets what is wrong with its parts and between them.

    Raises ConfigError if the file can't be read or is no YAML.
    """
    top = top_of(file, faults, environ)
    name = top.text("name", file.stem)
    kafka = top.section("kafka")
    sources, spark = top.section("sources"), top.section("spark")
    steps = list(top.sections("steps"))
    source_names = sources.names if sources else []
    found = Pipeline(
        file=file,
        name=name,
        checkpoint=top.text("checkpoint"),
        every=_trigger(top),
        kafka=None if kafka is None else _kafka(kafka, name),
        sources=tuple(filter(None, (read_source(sources, each) for each in source_names))) if sources else (),
        steps=tuple(filter(None, (read_step(step, file.parent) for step in steps))),
        sinks=tuple(filter(None, map(read_sink, top.sections("sinks")))),
        spark=top.mapping("spark"),
        spark_places={} if spark is None else {key: spark.place_of(key) for key in spark.names},
    )
    for key, wanted in (("sources", found.sources), ("sinks", found.sinks)):
        if not wanted and not top.has(key):
            top.fault("is missing", key)
    top.finish()
    check(found, faults, [*source_names, *(step.text("name", "") for step in steps)])
    return found


def _trigger(top: Section) -> str | None:
    """The interval, or None for what is there now."""
    if not top.has("trigger"):
        top.fault(f"is missing: {_TRIGGERS}", "trigger")
        return None
    if not top.is_mapping("trigger"):
        if top.text("trigger") != "availableNow":
            top.fault(_TRIGGERS, "trigger")
        return None
    inner = top.section("trigger")
    assert inner is not None
    every = inner.duration("continuous")
    inner.finish()
    return every


def _kafka(section: Section, pipeline: str) -> Kafka:
    control = section.maybe("control")
    is_url = control is not None and "://" in control
    found = Kafka(
        bootstrap_servers=section.text("bootstrap.servers"),
        transactional_id=section.text("transactional.id", f"pipeline-{pipeline}"),
        control_url=control if is_url else None,
        control_socket=None if is_url else control,
        token_file=section.maybe("token.file"),
        producer=section.mapping("producer"),
        security=section.mapping("security"),
        place=section.place_of("bootstrap.servers"),
    )
    if control is not None and is_url and not control.startswith("http://"):
        section.fault(f"{control!r} must be http://HOST:PORT, or the path of a socket", "control")
    if is_url and found.token_file is None:
        section.fault("is missing: who asks at a URL must show a token", "token.file")
    section.finish()
    return found
