"""A client of Spark Connect that writes and reads by the format kproxy: ``python -m tests.spark.connect_job JSON``."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kproxy.spark import Upsert, register

SECONDS = 300


def main(job: Mapping[str, Any]) -> None:
    """Prints what it found as one line of JSON."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    register(spark)
    sink, source = job["sink"], {"kafka.bootstrap.servers": job["sink"]["kafka.bootstrap.servers"]}
    found: dict[str, Any] = {}
    rows = spark.range(10).selectExpr("string(id) as value")
    once = {**sink, "topic": job["first"], "transactional.id": "connect-once"}
    rows.write.format("kproxy").options(**once).save()  # without a mode
    stream = spark.readStream.format("kproxy").options(**source, subscribe=job["first"], startingOffsets="earliest")
    written = stream.load().selectExpr("value").writeStream.format("kproxy")
    written = written.options(**sink, topic=job["second"]).option("transactional.id", "connect-stream")
    query = written.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True).start()
    found["ended"] = query.awaitTermination(SECONDS)
    table = spark.read.format("kproxy").options(**source, subscribe=job["second"]).load()
    found["seen"] = sorted(row.value for row in table.selectExpr("string(value) as value").collect())
    found["counted"] = [_counted(spark, job, source) for _ in range(2)]
    try:
        spark.read.format("kproxy").options(**source, subscripe="x").load().count()
    except PySparkException as error:
        found["wrong"] = str(error)
    print(json.dumps(found))
    spark.stop()


def _counted(spark: SparkSession, job: Mapping[str, Any], source: Mapping[str, str]) -> list[list[str]]:
    """The third topic's rows after a query in update mode has counted the first one's values by their parity."""
    checkpoint = f"{job['checkpoint']}-counts"
    given = (
        spark.readStream.format("kproxy").options(**source, subscribe=job["first"], startingOffsets="earliest").load()
    )
    counts = given.groupBy((given.value.cast("string").cast("int") % 2).cast("string").alias("key")).count()
    sink = {
        **job["sink"],
        "topic": job["third"],
        "transactional.id": "connect-counts",
        "checkpointLocation": checkpoint,
    }
    rows = counts.selectExpr("key", "string(count) as value").writeStream.outputMode("update")
    query = rows.foreachBatch(Upsert(sink)).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination(SECONDS)
    table = spark.read.format("kproxy").options(**source, subscribe=job["third"]).load()
    return sorted([row.key, row.value] for row in table.selectExpr("string(key) key", "string(value) value").collect())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
