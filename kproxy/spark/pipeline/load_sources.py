"""Reads the sources of a pipeline's file."""

import re

from kproxy.config.section import Section
from kproxy.spark.pipeline.pipeline_model import ParquetSource, Source, TopicSource, Watermark

# Options of the data source that have a key of their own, or that the pipeline decides.
_TAKEN = ("subscribe", "subscribePattern", "assign", "startingOffsets", "maxOffsetsPerTrigger")
_KINDS = ("topics", "pattern", "parquet")


def read_source(sources: Section, name: str) -> Source | None:
    """The source of that name; None, with an error reported, if it is none."""
    section = sources.section(name)
    assert section is not None
    check_name(section, name)
    given = [kind for kind in _KINDS if section.has(kind)]
    if len(given) != 1:
        section.fault(f"must have one of {', '.join(_KINDS)}" + (f", not {' and '.join(given)}" if given else ""))
        return None
    found = _parquet(section, name) if given == ["parquet"] else _topics(section, name)
    section.finish()
    return found


def check_name(section: Section, name: str) -> None:
    """Sources and steps are tables of Spark's, so their names must be such as need no quotes."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        section.fault(f"{name!r} must be letters, digits and underscores, as the name of a table")


def read_watermark(section: Section) -> Watermark | None:
    """The watermark of a source or a step."""
    inner = section.section("watermark")
    if inner is None:
        return None
    found = Watermark(inner.text("column"), inner.duration("delay"))
    inner.finish()
    return found


def _topics(section: Section, name: str) -> TopicSource:
    pattern, options = section.maybe("pattern"), section.mapping("options")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            section.fault(f"{pattern!r} is no regular expression: {error}", "pattern")
    for option in options:
        if option.lower() in map(str.lower, _TAKEN) or option.lower().startswith("kafka.bootstrap"):
            section.fault(f"options.{option} is not for here: it has a key of its own", "options")
    return TopicSource(
        name=name,
        place=section.place,
        topics=section.texts("topics"),
        pattern=pattern,
        starting_offsets=section.text("starting.offsets", "earliest"),
        max_offsets_per_trigger=section.number("max.offsets.per.trigger"),
        watermark=read_watermark(section),
        options=options,
    )


def _parquet(section: Section, name: str) -> ParquetSource:
    found = ParquetSource(
        name=name,
        place=section.place,
        path=section.text("parquet"),
        schema=section.maybe("schema"),
        static=section.flag("static"),
        max_files_per_trigger=section.number("max.files.per.trigger"),
        watermark=read_watermark(section),
    )
    if found.static and (found.max_files_per_trigger or found.watermark):
        section.fault("is for streams: a static source has neither watermark nor max.files.per.trigger", "static")
    return found
