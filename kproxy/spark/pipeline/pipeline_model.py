"""A pipeline as its file says it, read and checked; nothing here knows Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from kproxy.config.config_faults import Location

_KAFKA: Final = Location(1, "kafka")


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may be (``DataFrame.withWatermark``): ``delay`` before the newest ``column``, "10 minutes"."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Kafka:
    """The kproxy that topics are read and written through."""

    bootstrap_servers: str
    transactional_id: str
    """Of the one transaction that each batch's records to all topics are in."""
    control_url: str | None = None
    control_socket: str | None = None
    token_file: str | None = None
    producer: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the producer, as compression.type."""
    security: Mapping[str, str] = field(default_factory=dict)
    """TLS and SASL, for reading and for writing, by Kafka's names."""
    place: Location = _KAFKA


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Records of topics: those named, or those whose name matches the pattern."""

    name: str
    place: Location
    topics: tuple[str, ...]
    pattern: str | None
    starting_offsets: str
    max_offsets_per_trigger: int | None
    watermark: Watermark | None
    options: Mapping[str, str]
    """Further options of the data source, by Spark's names."""

    static = False


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A directory of parquet files: those that come are streamed; ``static`` ones are read whole in each batch."""

    name: str
    place: Location
    path: str
    schema: str | None
    """DDL; None: that of the files which are there at the start."""
    static: bool
    max_files_per_trigger: int | None
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A query over sources and earlier steps, which are tables by their names."""

    name: str
    place: Location
    sql: str
    inputs: tuple[str, ...]
    """The sources and steps that it reads, as it spells them."""
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function that has DataFrames as its parameters, by the names of sources and steps, and returns one."""

    name: str
    place: Location
    module: str
    function: str
    inputs: tuple[str, ...]
    path: Path | None
    """Directory or zip archive that has the module; None: it is installed."""
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic; the rest are SQL expressions over the columns of ``step``, None for the column of that name."""

    place: Location
    topic: str
    step: str
    expressions: Mapping[str, str]
    """Of key, value, headers and partition, those that are given."""


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """A directory that gets one sub-directory for each batch, whole or not at all."""

    place: Location
    path: str
    step: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All of it."""

    file: Path
    name: str
    checkpoint: str
    every: str | None
    """Micro-batches at this interval, "5 seconds"; None: all that is there now, then the end."""
    kafka: Kafka | None
    sources: "tuple[Source, ...]"
    steps: "tuple[Step, ...]"
    sinks: "tuple[Sink, ...]"
    spark: Mapping[str, str]
    """Spark's configuration."""
    spark_places: Mapping[str, Location] = field(default_factory=dict)

    @property
    def topic_sinks(self) -> tuple[TopicSink, ...]:
        """Those that one query writes in one transaction a batch."""
        return tuple(sink for sink in self.sinks if isinstance(sink, TopicSink))

    @property
    def parquet_sinks(self) -> tuple[ParquetSink, ...]:
        """Each of which is a query of its own."""
        return tuple(sink for sink in self.sinks if isinstance(sink, ParquetSink))

    @property
    def modules(self) -> Mapping[Path, tuple[str, ...]]:
        """The modules of its steps, by the directory or archive that has them; without installed ones."""
        found: dict[Path, tuple[str, ...]] = {}
        for step in self.steps:
            if isinstance(step, PythonStep) and step.path is not None:
                found[step.path] = (*found.get(step.path, ()), step.module)
        return found


Source: TypeAlias = TopicSource | ParquetSource
Step: TypeAlias = SqlStep | PythonStep
Sink: TypeAlias = TopicSink | ParquetSink
