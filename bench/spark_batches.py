"""What a micro-batch costs: topic to topic, 1,000 records a second, a trigger each second, by both connectors in turns.

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
from bench.spark_stage import PARTITIONS, Stage, open_stage
from bench.spark_watch import cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MORE_MILLISECONDS: Final = 100.0
CPU_RATIO: Final = 1.3
_WAYS: Final = ("kafka", "kproxy")
_ROUNDS: Final = 2
_WARM_BATCHES: Final = 10
_BATCHES: Final = 30
_PATIENCE_SECONDS: Final = 120.0
_RECORDS_A_TURN: Final = 50
_TURN_SECONDS: Final = 0.05
_VALUE: Final = b"x" * 100
_SPARK: Final = "Spark"


class Course:
    """What one way came to: ms of each micro-batch, seconds, and CPU seconds of each process."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self.seconds = 0.0
        self.cpu: dict[str, float] = {}

    def add(self, progress: list[dict[str, Any]], seconds: float, cpu: dict[str, float]) -> None:
        """A round is through."""
        self.milliseconds += [batch["durationMs"]["triggerExecution"] for batch in progress]
        self.seconds += seconds
        self.cpu = {name: used + self.cpu.get(name, 0.0) for name, used in cpu.items()}

    def percentile(self, share: int) -> float:
        """Of the batches' ms."""
        return statistics.quantiles(self.milliseconds, n=100)[share - 1]

    def cores(self, process: str) -> float:
        """How many processors a process had on average."""
        return self.cpu[process] / self.seconds


def spark_batches() -> Iterator[Figure]:
    """The figures, once all rounds are through. RuntimeError if a query ends, or does not get along."""
    with open_stage() as stage:
        yield from measured(stage, _ROUNDS, _WARM_BATCHES, _BATCHES)


def measured(stage: Stage, rounds: int, warm: int, batches: int) -> Iterator[Figure]:
    """As ``spark_batches``, where all is running."""
    courses = {way: Course() for way in _WAYS}
    for number in range(rounds):
        for way in _WAYS if number % 2 == 0 else _WAYS[::-1]:
            _measure(stage, way, f"bench-batches-{way}-{number}", courses[way], (warm, batches))
    kafka, kproxy = (courses[way] for way in _WAYS)
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
    processes = {_SPARK: stage.java, **stage.others}
    with stage.topic(f"{name}-in") as given, stage.topic(f"{name}-out") as written, _fed(stage.brokers, given):
        query = _start(stage, way, name, given, written)
        try:
            first = _await(query, warm)
            began, before = time.perf_counter(), {each: cpu_seconds(pid) for each, pid in processes.items()}
            _await(query, first + batches)
            seconds = time.perf_counter() - began
            cpu = {each: cpu_seconds(pid) - before[each] for each, pid in processes.items()}
            progress = [batch for batch in query.recentProgress if batch["batchId"] >= first]
            course.add([batch for batch in progress if batch["numInputRows"]], seconds, cpu)
        finally:
            query.stop()


def _start(stage: Stage, way: str, name: str, given: str, written: str) -> "StreamingQuery":
    servers = {"kafka.bootstrap.servers": stage.kproxy if way == "kproxy" else stage.brokers}
    sink = dict(servers)
    if way == "kproxy":
        sink |= {"kproxy.control.socket": str(stage.control), "transactional.id": name}
    rows = stage.spark.readStream.format(way).options(**servers).option("subscribe", given).load()
    writer = rows.select("key", "value").writeStream.format(way).options(**sink).option("topic", written)
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
