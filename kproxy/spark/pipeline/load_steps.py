"""Reads the steps and the sinks of a pipeline's file."""

from pathlib import Path

from kproxy.config.section import Section
from kproxy.spark.pipeline.load_sources import check_name, read_watermark
from kproxy.spark.pipeline.pipeline_model import ParquetSink, PythonStep, Sink, SqlStep, Step, TopicSink
from kproxy.spark.pipeline.python_steps import StepError, parameters
from kproxy.spark.pipeline.sql_names import tables_read

_EXPRESSIONS = ("key", "value", "headers", "partition")


def read_step(section: Section, folder: Path) -> Step | None:
    """A step; None, with an error reported, if it is none. Paths in it are relative to ``folder``."""
    name = section.text("name")
    if name:
        check_name(section, name)
    kinds = [kind for kind in ("sql", "python") if section.has(kind)]
    if len(kinds) != 1:
        section.fault(f"must have {'only ' if kinds else ''}one of sql, python")
        return None
    found = _sql(section, name) if kinds == ["sql"] else _python(section, name, folder)
    section.finish()
    return found


def read_sink(section: Section) -> Sink | None:
    """A sink; None, with an error reported, if it is none."""
    kinds = [kind for kind in ("topic", "parquet") if section.has(kind)]
    if len(kinds) != 1:
        section.fault(f"must have {'only ' if kinds else ''}one of topic, parquet")
        return None
    found: Sink
    if kinds == ["topic"]:
        given = {key: section.text(key) for key in _EXPRESSIONS if section.has(key)}
        found = TopicSink(section.place, section.text("topic"), section.text("from"), given)
    else:
        path, columns = section.text("parquet"), section.texts("partition.by")
        found = ParquetSink(section.place, path, section.text("from"), columns)
    section.finish()
    return found


def _sql(section: Section, name: str) -> SqlStep:
    sql = section.text("sql")
    return SqlStep(name, section.place_of("sql"), sql, tables_read(sql), read_watermark(section))


def _python(section: Section, name: str, folder: Path) -> PythonStep | None:
    text, given = section.text("python"), section.maybe("path")
    module, colon, function = text.partition(":")
    watermark, place = read_watermark(section), section.place_of("python")
    path = None if given is None else folder / given
    if not colon or not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        section.fault(f"{text!r} must be module:function", "python")
        return None
    try:
        inputs = parameters(module, function, path)
    except StepError as error:
        section.fault(str(error), "python")
        return None
    return PythonStep(name, place, module, function, inputs, path, watermark)
