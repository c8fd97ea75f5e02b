"""A job for a cluster: copies a topic, and prints from where each executor has kproxy. ``spark-submit ... JSON``."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kproxy.spark import register

TASKS = 8


def place(_: int) -> tuple[str, str]:
    """Where this worker runs, and where its kproxy is."""
    import kproxy

    return str(Path.cwd()), kproxy.__file__


def main(job: Mapping[str, Any]) -> None:
    """Prints what it found as one line of JSON."""
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    read = spark.readStream.format("kproxy").options(**job["source"], startingOffsets="earliest")
    written = read.load().selectExpr("key", "value").writeStream.format("kproxy").options(**job["sink"])
    query = written.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    places = spark.sparkContext.parallelize(range(TASKS), TASKS).map(place).distinct().collect()
    table = spark.read.format("kproxy").options(**job["copy"]).load()
    print(json.dumps({"places": places, "records": table.count(), "values": table.select("value").distinct().count()}))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
