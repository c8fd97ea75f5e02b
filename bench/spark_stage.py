"""A real Kafka, a kproxy, a Spark session with both connectors, and rows to write."""

import contextlib
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bench.payloads import RECORD_BYTES, SMALL
from kproxy.spark.spark_session import spark_session
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from verification.copiers.processes import Kproxy
from verification.spark_proof.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark's own connector at the broker, and ours through kproxy.
WAYS = ("kafka", "kproxy")
VALUE_BYTES = RECORD_BYTES[SMALL]
PARTITIONS = 4
#: Of a job that reads the rows: one a file, and a file may be cut once or twice more.
TASKS = 48
_FILES = 16
_CORES = 2


@dataclass(frozen=True)
class Stage:
    """Addresses and what is running."""

    spark: "SparkSession"
    brokers: str
    kproxy: str
    control: Path
    directory: Path
    #: The process ids of kproxy and the broker.
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def java(self) -> int:
        """The process id of Spark's Java, below which its Python workers are."""
        assert self.spark._jvm is not None
        return int(self.spark._jvm.java.lang.ProcessHandle.current().pid())

    @property
    def processes(self) -> dict[str, int]:
        """The process ids of all that takes part, by name."""
        return {"Spark": self.java, **self.others}

    def servers(self, way: str) -> dict[str, str]:
        """The options of a source."""
        return {"kafka.bootstrap.servers": self.kproxy if way == "kproxy" else self.brokers}

    def sink(self, way: str, transactional_id: str) -> dict[str, str]:
        """The options of a sink, but for its topic."""
        if way != "kproxy":
            return self.servers(way)
        return self.servers(way) | {
            "kproxy.control.socket": str(self.control),
            "transactional.id": transactional_id,
        }

    @contextlib.contextmanager
    def topic(self, name: str) -> Iterator[str]:
        """A topic for the length of the block."""
        with ClusterClient(self.brokers) as client:
            client.create_topic(name, PARTITIONS)
        try:
            yield name
        finally:
            with ClusterClient(self.brokers) as client:
                client.delete_topic(name)

    def rows(self, count: int, value_bytes: int = VALUE_BYTES) -> "DataFrame":
        """``count`` rows of key and value in Parquet files, made when they are first asked for."""
        directory = self.directory / f"rows-{count}-{value_bytes}"
        if not directory.exists():
            directory.mkdir()
            for index in range(_FILES):
                numbers = range(count * index // _FILES, count * (index + 1) // _FILES)
                _write(directory / f"{index}.parquet", numbers, value_bytes)
        return self.spark.read.parquet(str(directory))


def in_turn(number: int) -> tuple[str, ...]:
    """The ways in the order of a round, so that none is always the first."""
    return WAYS if number % 2 == 0 else WAYS[::-1]


def _write(path: Path, numbers: range, value_bytes: int) -> None:
    """Keys are the numbers, values are random, so that nobody compresses them by accident."""
    count = len(numbers)
    ends = pa.array(range(0, (count + 1) * value_bytes, value_bytes), pa.int32()).buffers()[1]
    values = pa.py_buffer(random.Random(numbers.start).randbytes(count * value_bytes))
    columns = {
        "key": pa.array(numbers, pa.int64()).cast(pa.string()).cast(pa.binary()),
        "value": pa.Array.from_buffers(pa.binary(), count, [None, ends, values]),
    }
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)


@contextlib.contextmanager
def open_stage() -> Iterator[Stage]:
    """All of it for the length of the block. Unavailable, ToolFailed or StartupError say what is missing."""
    with (
        tempfile.TemporaryDirectory(prefix="kproxy-bench-") as name,
        RealKafka(jvm_options=("-Xmx2g", "-XX:+UseG1GC")) as kafka,
    ):
        directory = Path(name)
        control = directory / "control.sock"
        with (
            Kproxy("bench", kafka.bootstrap, directory, "--control-socket", str(control), home="auto") as kproxy,
            spark_session("kproxy bench", _conf(directory)) as spark,
        ):
            kproxy.wait_ready()
            broker = kafka.pid(0)
            assert broker is not None
            others = {"kproxy": kproxy.pid, "broker": broker}
            yield Stage(spark, kafka.bootstrap, kproxy.bootstrap, control, directory, others)


def _conf(directory: Path) -> dict[str, str]:
    return {
        "spark.master": f"local[{_CORES}]",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * _CORES),
        "spark.jars": ",".join(str(jar) for jar in connector_jars()),
    }
