"""The driver program: one query that copies a topic into three. ``python -m verification.spark_proof.job JSON``."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproxy.spark import register
from kproxy.spark.sink_task import task_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

KPROXY: Final = "kproxy"
KAFKA: Final = "kafka"
INPUT_PARTITIONS: Final = 4
_LOOK_SECONDS: Final = 0.05

_CONF: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.authenticate.socketTimeout": "60s",
    # What is slower than the others is done twice, and the first result wins.
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
    # Who is killed comes back: neither the query nor an executor is given up for it.
    "spark.task.maxFailures": "100",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.executor.maxNumFailures": "1000",
    "spark.excludeOnFailure.enabled": "false",
    # All batches stay on record: the numbers of each are compared with what readers saw.
    "spark.sql.streaming.minBatchesToRetain": "1000000",
}


def main(arguments: Mapping[str, str]) -> None:
    """Runs until all that was there at its start is copied."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(arguments["master"]).appName("kproxy-proof")
    for name, value in {**_CONF, "spark.jars": arguments["jars"]}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    spark.sparkContext.setLogLevel("WARN")
    rows = _rows(spark, arguments).writeStream.format(arguments["sink"]).options(**_sink(arguments))
    query = rows.option("checkpointLocation", arguments["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


def _rows(spark: "SparkSession", arguments: Mapping[str, str]) -> "DataFrame":
    source = spark.readStream.format("kproxy").option("kafka.bootstrap.servers", arguments["kproxy"])
    source = source.option("subscribe", arguments["input"]).option("startingOffsets", "earliest")
    rows = source.option("maxOffsetsPerTrigger", arguments["batch"]).load()
    if arguments["gates"]:
        rows = rows.mapInArrow(partial(hold, arguments["gates"]), rows.schema)
    topics = ", ".join(f"'{topic}'" for topic in arguments["outputs"].split(","))
    return rows.selectExpr("key", "value", f"explode(array({topics})) as topic")


def hold(gates: str, rows: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """The rows of a task. The last task of a batch waits before them while ``gates`` has a file of the batch's number.

    The last one: with one executor the others have written by then.
    """
    names = task_names()
    gate = Path(gates) / names.batch
    while names.partition == INPUT_PARTITIONS - 1 and gate.exists():
        time.sleep(_LOOK_SECONDS)
    yield from rows


def _sink(arguments: Mapping[str, str]) -> dict[str, str]:
    if arguments["sink"] == KAFKA:
        return {"kafka.bootstrap.servers": arguments["brokers"]}
    return {
        "kafka.bootstrap.servers": arguments["kproxy"],
        "kproxy.control.socket": arguments["control"],
        "transactional.id": arguments["id"],
    }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
