"""The data source against Spark's own Kafka connector, and the audit: side by side, in turns, on one real Kafka.

"Direct" is Spark's connector at the broker, at least once and without kproxy; "kproxy" is ``format("kproxy")`` through
a kproxy, exactly once and read_committed. Kafka, kproxy, Java and Python workers share the machine.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bench.report import Figure
from bench.spark_stage import PARTITIONS, TASKS, VALUE_BYTES, WAYS, Stage, in_turn, open_stage
from bench.spark_watch import CpuMeter, Workers, added, cpu_seconds
from kproxy.spark.audit.audit_job import audit
from kproxy.spark.audit.request import Request
from kproxy.spark.audit.spark_engine import SparkEngine
from kproxy.testing.cluster_client import ClusterClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SINK_RATIO: Final = 1.0
SOURCE_RATIO: Final = 1.0
SOURCE_CPU_RATIO: Final = 1.0
WORKER_MEGABYTES: Final = 512
_WARM_RECORDS: Final = 2_000
_ROUNDS: Final = 3
#: From here on a round takes so long that what else the machine does falls on both ways alike.
_LARGE_RECORDS: Final = 5_000_000
_ROUNDS_OF_LARGE: Final = 2
_READS: Final = ("count", "values")
_MEGABYTE: Final = 1e6
_MILLION: Final = 1e6

Tell = Callable[[str], None]


class WrongCount(RuntimeError):
    """A way did not move the records that it was given, so its time says nothing."""


@dataclass
class Course:
    """What one size came to: seconds of each way in all rounds, by what was done; peaks of workers in bytes."""

    records: int
    rounds: int
    value_bytes: int = VALUE_BYTES
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    #: CPU seconds of each process in all rounds, by what was done and the way.
    cpu: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)

    def add(self, what: str, way: str, seconds: float, cpu: Mapping[str, float] = MappingProxyType({})) -> None:
        """A round is through."""
        self.seconds[what, way] = self.seconds.get((what, way), 0.0) + seconds
        self.cpu[what, way] = added(self.cpu.get((what, way), {}), cpu)

    def cpu_of(self, process: str, what: str, way: str) -> float:
        """CPU seconds of a process for a million records."""
        return self.cpu[what, way][process] / (self.records * self.rounds / _MILLION)

    def speed(self, what: str, way: str) -> float:
        """Records a second."""
        return self.records * (1 if what == "audit" else self.rounds) / self.seconds[what, way]

    @property
    def record_bytes(self) -> int:
        """Of value and key, which is the record's number; nearly all are as long."""
        return self.value_bytes + len(str(self.records - 1))

    def ratio(self, what: str) -> float:
        """The speed to that of Spark's own."""
        return self.speed(what, "kproxy") / self.speed(what, "kafka")


def steps(sizes: Sequence[int]) -> int:
    """How often ``spark`` tells what it does next."""
    return 2 + sum(rounds(count) * len(WAYS) * (1 + len(_READS)) + 1 for count in sizes)


def source_steps(sizes: Sequence[int]) -> int:
    """How often ``spark_sources`` tells what it does next."""
    return 2 + sum(1 + rounds(count) * len(WAYS) * len(_READS) for count in sizes)


def rounds(records: int) -> int:
    """How often each way takes its turn."""
    return _ROUNDS if records < _LARGE_RECORDS else _ROUNDS_OF_LARGE


def spark(sizes: Sequence[int], value_bytes: int, tell: Tell) -> Iterator[Figure]:
    """The figures of each size as they come, then how speeds change with the size. WrongCount."""
    tell("Kafka, kproxy and Spark start")
    with open_stage() as stage:
        yield from measured(stage, sizes, value_bytes, tell)


def spark_sources(sizes: Sequence[int], value_bytes: int, tell: Tell) -> Iterator[Figure]:
    """The sources alone: each size is written once, by Spark's own sink at the broker. WrongCount."""
    tell("Kafka, kproxy and Spark start")
    with open_stage() as stage:
        tell("warming up")
        for _ in _sources_of(stage, Course(_WARM_RECORDS, 1, value_bytes), lambda _: None):
            pass
        for count in sizes:
            yield from _sources_of(stage, Course(count, rounds(count), value_bytes), tell)


def _sources_of(stage: Stage, course: Course, tell: Tell) -> Iterator[Figure]:
    with stage.topic(f"bench-source-{course.records}") as topic:
        tell(f"{course.records:,} records: written")
        _sink(stage, course, stage.rows(course.records, course.value_bytes), "kafka", topic)
        yield from sources(stage, course, topic, tell)


def measured(stage: Stage, sizes: Sequence[int], value_bytes: int, tell: Tell) -> Iterator[Figure]:
    """As ``spark``, where all is running."""
    tell("warming up")
    for _ in _measure(stage, Course(_WARM_RECORDS, 1, value_bytes), lambda _: None):
        pass
    courses = []
    for count in sizes:
        course = Course(count, rounds(count), value_bytes)
        yield from _measure(stage, course, tell)
        courses.append(course)
    for course in courses[1:]:
        yield from growth(courses[0], course)


def _measure(stage: Stage, course: Course, tell: Tell) -> Iterator[Figure]:
    with stage.topic(f"bench-sink-kproxy-{course.records}-0") as topic:
        yield from sinks(stage, course, topic, tell)
        yield from sources(stage, course, topic, tell)
        yield from _audit(stage, course, topic, tell)


def sinks(stage: Stage, course: Course, kept: str, tell: Tell) -> Iterator[Figure]:
    """Each write into a topic of its own; the first that kproxy wrote is ``kept``, to be read. WrongCount."""
    rows = stage.rows(course.records, course.value_bytes)
    for number in range(course.rounds):
        for way in in_turn(number):
            tell(f"{course.records:,} records: sink {way}, round {number + 1}")
            if (way, number) == ("kproxy", 0):
                _sink(stage, course, rows, way, kept)
                continue
            with stage.topic(f"bench-sink-{way}-{course.records}-{number}") as topic:
                _sink(stage, course, rows, way, topic)
    yield _paired("Spark sink", course, "sink", SINK_RATIO)
    kafka, kproxy = (course.speed("sink", way) * course.record_bytes / _MEGABYTE for way in WAYS)
    yield Figure(f"the same, {course.record_bytes} B a record", "MB/s", kafka, None, kproxy)
    yield from _cpu(course, "sink", None)
    yield _memory(course, "sink")


def _sink(stage: Stage, course: Course, rows: "DataFrame", way: str, topic: str) -> None:
    writer = rows.write.format(way).options(**stage.sink(way, "bench")).option("topic", topic).mode("append")
    _timed(stage, course, "sink", way, writer.save)
    with ClusterClient(stage.brokers) as client:
        written = sum(client.offset(topic, index) for index in range(PARTITIONS))
    if not _is_whole(written, course, way):
        raise WrongCount(f"sink {way} wrote {written:,} records and markers for {course.records:,} records")


def _is_whole(found: int, course: Course, way: str) -> bool:
    """Whether all records are there, and else only markers: of each task's transaction one in each partition."""
    return 0 <= found - course.records <= (TASKS * PARTITIONS if way == "kproxy" else 0)


def sources(stage: Stage, course: Course, topic: str, tell: Tell) -> Iterator[Figure]:
    """Both read the same topic, once only to count and once to look at each value. WrongCount."""
    for what in _READS:
        for number in range(course.rounds):
            for way in in_turn(number):
                tell(f"{course.records:,} records: source {way}, {what}, round {number + 1}")
                _source(stage, course, topic, what, way)
        yield _paired(f"Spark source, {what}", course, what, SOURCE_RATIO)
        yield from _cpu(course, what, SOURCE_CPU_RATIO)
        yield _memory(course, what)


def _source(stage: Stage, course: Course, topic: str, what: str, way: str) -> None:
    rows = stage.spark.read.format(way).options(**stage.servers(way)).option("subscribe", topic).load()

    def read() -> None:
        expression = (
            "count(*)" if what == "count" else f"count_if(crc32(value) >= 0 and length(value) = {course.value_bytes})"
        )
        found = rows.selectExpr(f"{expression} as records").head()
        if found is None or found["records"] != course.records:
            raise WrongCount(f"source {way} read {found} of {course.records:,} records")

    _timed(stage, course, what, way, read)


def _audit(stage: Stage, course: Course, topic: str, tell: Tell) -> Iterator[Figure]:
    tell(f"{course.records:,} records: audit")
    request = Request(stage.kproxy, None, topic, Path(stage.directory / "audits"), fresh=True)

    def run() -> None:
        with closing(SparkEngine(stage.spark)) as engine:
            summary, _ = audit(engine, request, lambda _: None)
        found = summary.totals["records"]
        if not _is_whole(found, course, "kproxy") or summary.broken:
            raise WrongCount(f"audit: {found:,} of {course.records:,} records. {summary.sentence}")

    before = cpu_seconds(stage.java) + time.process_time()
    _timed(stage, course, "audit", "kproxy", run)
    per_core = course.records / (cpu_seconds(stage.java) + time.process_time() - before)
    yield Figure(f"audit, {course.records:,} records", "records/s", None, None, course.speed("audit", "kproxy"))
    yield Figure("the same, a second of Spark's CPU", "records", None, None, per_core)
    yield _memory(course, "audit")


def _timed(stage: Stage, course: Course, what: str, way: str, run: Callable[[], None]) -> None:
    with Workers(stage.java).watched() as workers:
        began, cpu = time.perf_counter(), CpuMeter(stage.processes)
        run()
        seconds = time.perf_counter() - began
    course.add(what, way, seconds, cpu.spent())
    if way == "kproxy":
        course.peaks[what] = max(course.peaks.get(what, 0), workers.peak_bytes)


def _paired(what: str, course: Course, key: str, least: float) -> Figure:
    kafka, kproxy = (course.speed(key, way) for way in WAYS)
    ratio = course.ratio(key)
    goal = f">= {least} x Spark's own: {ratio:.2f}"
    return Figure(f"{what}, {course.records:,} records", "records/s", kafka, None, kproxy, goal, ratio >= least)


def _cpu(course: Course, what: str, most: float | None) -> Iterator[Figure]:
    """CPU for a million records, of each process; ``most``: Spark's, to that of its own connector."""
    for process in course.cpu[what, "kproxy"]:
        kafka, kproxy = (course.cpu_of(process, what, way) for way in WAYS)
        case = f"CPU of {process}, {what}, {course.records:,} records"
        if process != "Spark" or most is None:
            yield Figure(case, "s/million", kafka, None, kproxy)
            continue
        ratio = kproxy / kafka
        yield Figure(case, "s/million", kafka, None, kproxy, f"<= {most} x Spark's own: {ratio:.2f}", ratio <= most)


def _memory(course: Course, what: str) -> Figure:
    megabytes = course.peaks[what] / _MEGABYTE
    case = f"Python worker at most, {what}, {course.records:,} records"
    return Figure(case, "MB", None, None, megabytes, f"< {WORKER_MEGABYTES}", megabytes < WORKER_MEGABYTES)


def growth(small: Course, large: Course) -> Iterator[Figure]:
    """Speed at the larger size to that at the smaller: 1 where time grows as the records do."""
    for what in ("sink", *_READS, "audit"):
        kafka, kproxy = (
            None if (what, way) not in large.seconds else large.speed(what, way) / small.speed(what, way)
            for way in WAYS
        )
        yield Figure(f"{what}: speed at {large.records:,} to {small.records:,}", "", kafka, None, kproxy)
