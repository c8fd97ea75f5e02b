"""The cost of a micro-batch: topic to topic, 1,000 records a second, a trigger each second, both connectors in turns.

"Direct" is Spark's own connector at the broker, at least once; "kproxy" is ``format("kproxy")`` through a kproxy with
its default options, exactly once. A producer in this process feeds the topic at the broker.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from bench.report import Figure
from bench.spark_stage import PARTITIONS, WAYS, Stage, in_turn, open_stage
from bench.spark_watch import CpuMeter, added

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MORE_MILLISECONDS: Final = 100.0
CPU_RATIO: Final = 1.3
_ROUNDS: Final = 2
_WARM_BATCHES: Final = 10
_BATCHES: Final = 30
_PATIENCE_SECONDS: Final = 120.0
_RECORDS_A_TURN: Final = 50
_TURN_SECONDS: Final = 0.05
_VALUE: Final = b"x" * 100
_SPARK: Final = "Spark"


class Course:
    """The figures of one way: ms of each micro-batch, seconds, and CPU seconds of each process."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self.seconds = 0.0
        self.cpu: dict[str, float] = {}

    def add(self, progress: list[dict[str, Any]], seconds: float, cpu: dict[str, float]) -> None:
        """A round is through."""
        self.milliseconds += [batch["durationMs"]["triggerExecution"] for batch in progress]
        self.seconds += seconds
        self.cpu = added(self.cpu, cpu)

    def percentile(self, share: int) -> float:
        """The ms that so many of a hundred batches took at most."""
        return statistics.quantiles(self.milliseconds, n=100)[share - 1]

    def cores(self, process: str) -> float:
        """How many processors a process had on average."""
        return self.cpu[process] / self.seconds


def spark_batches() -> Iterator[Figure]:
    """The figures, once all rounds are through. RuntimeError if a query ends, or does not get along."""
    with open_stage() as stage:
        yield from measured(stage, _ROUNDS, _WARM_BATCHES, _BATCHES)


def measured(stage: Stage, rounds: int, warm: int, batches: int) -> Iterator[Figure]:
    """The figures of ``spark_batches``, where all is running."""
    courses = {way: Course() for way in WAYS}
    for number in range(rounds):
        for way in in_turn(number):
            _measure(stage, way, f"bench-batches-{way}-{number}", courses[way], (warm, batches))
    kafka, kproxy = (courses[way] for way in WAYS)
    for share in (50, 95):
        direct, ours = kafka.percentile(share), kproxy.percentile(share)
        goal = f"<= {MORE_MILLISECONDS:.0f} ms more: {ours - direct:.0f}" if share == 50 else ""
        met = ours - direct <= MORE_MILLISECONDS if goal else None
        yield Figure(f"micro-batch of 1,000 records, p{share}", "ms", direct, None, ours, goal, met)
    for process in kproxy.cpu:
        direct, ours = kafka.cores(process), kproxy.cores(process)
        ratio = ours / direct if direct else 0.0
        goal = f"<= {CPU_RATIO} x Spark's own: {ratio:.2f}" if process == _SPARK else ""
        met = ratio <= CPU_RATIO if goal else None
        yield Figure(f"CPU of {process}, micro-batches of 1,000", "cores", direct, None, ours, goal, met)


def _measure(stage: Stage, way: str, name: str, course: Course, wanted: tuple[int, int]) -> None:
    warm, batches = wanted
    with stage.topic(f"{name}-in") as given, stage.topic(f"{name}-out") as written, _fed(stage.brokers, given):
        query = _start(stage, way, name, given, written)
        try:
            first = _await(query, warm)
            began, cpu = time.perf_counter(), CpuMeter(stage.processes)
            _await(query, first + batches)
            seconds = time.perf_counter() - began
            spent = cpu.spent()
            progress = [batch for batch in query.recentProgress if batch["batchId"] >= first]
            course.add([batch for batch in progress if batch["numInputRows"]], seconds, spent)
        finally:
            query.stop()


def _start(stage: Stage, way: str, name: str, given: str, written: str) -> "StreamingQuery":
    rows = stage.spark.readStream.format(way).options(**stage.servers(way)).option("subscribe", given).load()
    writer = rows.select("key", "value").writeStream.format(way).options(**stage.sink(way, name))
    writer = writer.option("topic", written)
    checkpoint = str(stage.directory / f"checkpoint-{name}")
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="1 second").start()


def _await(query: "StreamingQuery", batches: int) -> int:
    """Until so many micro-batches are through; how many are."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        last = query.lastProgress
        done = -1 if last is None else int(last["batchId"])
        if done >= batches:
            return done
        if not query.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"{done} of {batches} micro-batches are through: {query.exception() or query.status}")
        time.sleep(0.1)


@contextmanager
def _fed(brokers: str, topic: str) -> Iterator[None]:
    """1,000 records a second into a topic, for the length of the block."""
    stopped = threading.Event()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})

    def feed() -> None:
        count, due = 0, time.monotonic()
        while not stopped.wait(max(0.0, due - time.monotonic())):
            for number in range(count, count + _RECORDS_A_TURN):
                producer.produce(topic, _VALUE, str(number), partition=number % PARTITIONS)
            producer.poll(0)
            count, due = count + _RECORDS_A_TURN, due + _TURN_SECONDS

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        producer.flush(_PATIENCE_SECONDS)
