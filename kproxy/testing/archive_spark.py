"""Makes the archive of Spark's classes, if it is not there: ``python -m kproxy.testing.archive_spark``."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproxy.testing.cache import filled_once
from kproxy.testing.class_archive import writing
from kproxy.testing.spark_home import installed_spark, spark_archive, spark_environment, submit_options
from kproxy.testing.tools import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_SECONDS: Final = 300.0
_PROGRAM: Final = "import sys; from kproxy.testing.archive_spark import use_spark; use_spark(sys.argv[1])"


def archive_spark() -> Path:
    """Returns the archive, which a driver writes at its end if it is missing. Unavailable if none can be made."""
    archive = spark_archive()
    filled_once(archive.parent, lambda directory: _write(directory / archive.name))
    return archive


def _write(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="kproxy-spark-") as scratch:
        # Not a home in the scratch directory: Java uses an archive only while its jars are at the paths of that time.
        environment = os.environ | spark_environment(installed_spark())
        environment["SPARK_SUBMIT_OPTS"] = submit_options(writing(archive))
        command = [sys.executable, "-c", _PROGRAM, scratch]
        done = subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    if done.returncode or not archive.exists():
        raise Unavailable(f"Spark wrote no archive of its classes:\n{done.stderr[-2000:]}")


def use_spark(scratch: str) -> None:
    """Runs what most jobs do, so that their classes are loaded, and waits for the end of Spark's Java."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    rows = spark.range(1000).selectExpr("id % 7 as key", "cast(id as string) as value")
    rows.write.parquet(f"{scratch}/rows")
    rows.groupBy("key").count().orderBy("key").collect()
    rows.mapInArrow(_same, rows.schema).count()
    stream = spark.readStream.schema(rows.schema).parquet(f"{scratch}/rows").groupBy("key").count()
    writer = stream.writeStream.format("memory").queryName("counts").outputMode("complete")
    writer.option("checkpointLocation", f"{scratch}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    gateway = SparkContext._gateway  # noqa: SLF001 - nothing public waits for Java's end
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _same(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    return batches


if __name__ == "__main__":
    try:
        archive_spark()
    except (ImportError, OSError, Unavailable, subprocess.TimeoutExpired) as error:
        sys.exit(f"no archive of Spark's classes, so Spark starts more slowly: {error}")
