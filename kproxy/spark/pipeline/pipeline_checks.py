"""Rules between the parts of a pipeline: each is fine alone, together they can't work."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from kproxy.config.config_faults import Faults, Location
from kproxy.config.values import suggest
from kproxy.spark.pipeline.data_source import option_faults
from kproxy.spark.pipeline.pipeline_model import Pipeline, Sink, Source, Step, TopicSink, TopicSource

_NO_ATOMIC_RENAME = ("s3", "s3a", "s3n", "gs", "wasb", "wasbs", "oss", "cos", "swift")


def check(pipeline: Pipeline, faults: Faults, names: list[str]) -> None:
    """Adds a fault for each rule that is broken between parts that have no fault of their own yet.

    ``names`` are those of all sources and steps of the file, also of those that could not be read.
    """
    readable = faultless(pipeline, faults)
    all_sources_read = not any(fault.place.key.startswith("sources.") for fault in faults.found)
    found = [rule(readable) for rule in (_settings, _names, _doubles, _loops, _kafka, option_faults)]
    for place, text in chain(
        _streams(pipeline) if all_sources_read else (), *found, _inputs(readable, names), _sinks(readable, names)
    ):
        faults.add(place, text)


def faultless(pipeline: Pipeline, faults: Faults) -> Pipeline:
    """The pipeline without the parts that have a fault: another rule would report the same thing again.

    Without ``kafka``, if that has a fault, its topics can't be checked either.
    """
    faulty = {_part(fault.place) for fault in faults.found}

    def keeps(entry: Source | Step | Sink) -> bool:
        without_kafka = "kafka" in faulty and isinstance(entry, (TopicSource, TopicSink))
        return _part(entry.place) not in faulty and not without_kafka

    return replace(
        pipeline,
        kafka=None if "kafka" in faulty else pipeline.kafka,
        sources=tuple(filter(keeps, pipeline.sources)),
        steps=tuple(filter(keeps, pipeline.steps)),
        sinks=tuple(filter(keeps, pipeline.sinks)),
        spark={name: value for name, value in pipeline.spark.items() if f"spark.{name}" not in faulty},
    )


def _part(place: Location) -> str:
    """The part of the file that a key belongs to: ``sources.NAME``, ``steps[1]``, ``sinks[0]``, ``kafka``."""
    first, *rest = place.key.split(".")
    if first == "spark":
        return place.key
    return ".".join((first, *rest[:1])) if first == "sources" else first


def _settings(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    for name in pipeline.spark:
        if not name.startswith("spark."):
            yield pipeline.spark_places[name], "is no setting of Spark: their names begin with 'spark.'"


def _names(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    seen: dict[str, str] = {}
    for entry in (*pipeline.sources, *pipeline.steps):
        if entry.name and entry.name.lower() in seen:
            yield entry.place, f"{entry.name!r} is already the name of another source or step (Spark ignores case)"
        seen[entry.name.lower()] = entry.name


def _inputs(pipeline: Pipeline, names: list[str]) -> Iterator[tuple[Location, str]]:
    steps = {step.name.lower(): step for step in pipeline.steps}
    known = {name.lower() for name in names}
    above = known - steps.keys()
    for step in pipeline.steps:
        for name in step.inputs:
            if name.lower() not in known:
                yield step.place, f"step {step.name!r} reads {name!r}: no source, no step{suggest(name, names)}"
            elif name.lower() not in above:
                yield step.place, _order(step, name, steps)
        above.add(step.name.lower())


def _order(step: Step, name: str, steps: Mapping[str, Step]) -> str:
    way = _way(name.lower(), step.name.lower(), steps, [])
    if way is None:
        return f"step {step.name!r} reads {name!r}, which is below it: a step reads steps above it"
    circle = " reads ".join(repr(steps[each].name) for each in (step.name.lower(), *way))
    return f"steps read each other: {circle}"


def _way(start: str, goal: str, steps: Mapping[str, Step], passed: list[str]) -> list[str] | None:
    """The steps from one to another along their inputs."""
    if start in passed or start not in steps:
        return None
    passed.append(start)
    if start == goal:
        return [start]
    for name in steps[start].inputs:
        way = _way(name.lower(), goal, steps, passed)
        if way is not None:
            return [start, *way]
    return None


def _sinks(pipeline: Pipeline, names: list[str]) -> Iterator[tuple[Location, str]]:
    for sink in pipeline.sinks:
        if sink.step and sink.step.lower() not in map(str.lower, names):
            yield sink.place, f"from: {sink.step!r} is no source and no step{suggest(sink.step, names)}"
    for sink in pipeline.parquet_sinks:
        scheme, separator, _ = sink.path.partition("://")
        if separator and scheme.lower() in _NO_ATOMIC_RENAME:
            text = f"{scheme} can't rename a directory at once: readers would see half a batch"
            yield sink.place, f"{sink.path}: {text}"


def _doubles(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    seen: set[str] = set()
    for sink in pipeline.topic_sinks:
        if sink.topic in seen:
            yield sink.place, f"two sinks write to the topic {sink.topic!r}: unite their rows in a step"
        seen.add(sink.topic)
    paths: set[str] = set()
    read = {source.path.rstrip("/") for source in pipeline.sources if not isinstance(source, TopicSource)}
    for output in pipeline.parquet_sinks:
        path = output.path.rstrip("/")
        if path in paths:
            yield output.place, f"two sinks write to {output.path}"
        if path in read:
            yield output.place, f"{output.path} is read by this pipeline too: a loop"
        paths.add(path)


def _loops(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    for source in pipeline.sources:
        if isinstance(source, TopicSource):
            for sink in pipeline.topic_sinks:
                if sink.topic in source.topics or _matches(source.pattern, sink.topic):
                    yield sink.place, f"the topic {sink.topic!r} is read by source {source.name!r}: a loop"


def _matches(pattern: str | None, topic: str) -> bool:
    try:
        return pattern is not None and re.fullmatch(pattern, topic) is not None
    except re.error:
        return False


def _kafka(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    if pipeline.kafka is None:
        for entry in (*pipeline.sources, *pipeline.sinks):
            if getattr(entry, "topics", ()) or getattr(entry, "pattern", None) or getattr(entry, "topic", None):
                yield entry.place, "topics are read and written through kproxy: 'kafka:' must say where it is"


def _streams(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    if pipeline.sources and all(source.static for source in pipeline.sources):
        yield pipeline.sources[0].place, "all sources are static: there is nothing that would begin a batch"
