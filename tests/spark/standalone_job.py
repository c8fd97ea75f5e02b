"""A job as users submit it, which imports nothing of the tests. Its argument is JSON; it prints JSON."""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from kproxy.spark import register


def main(job: dict[str, Any]) -> None:
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    reads, writes = job["reads"], job["writes"]
    numbers = spark.range(0, job["records"], 1, 4).selectExpr("cast(id as string) as value")
    first = {**writes, "topic": job["first"], "transactional.id": "standalone-first"}
    numbers.write.format("kproxy").options(**first).save()
    stream = spark.readStream.format("kproxy").options(**reads, subscribe=job["first"], startingOffsets="earliest")
    second = {**writes, "topic": job["second"], "transactional.id": "standalone-second"}
    copied = stream.load().select("value").writeStream.format("kproxy").options(**second)
    query = copied.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.read.format("kproxy").options(**reads, subscribe=job["second"]).load()
    found = rows.selectExpr("cast(value as string) as value")
    answer = {
        "records": found.count(),
        "different": found.distinct().count(),
        # the driver is in this list, too
        "executors": len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1,
        "python": spark.sparkContext.parallelize([0], 1).map(path_of_kproxy).first(),
    }
    print(json.dumps(answer))
    spark.stop()


def path_of_kproxy(_: int) -> str:
    """Where a task finds kproxy."""
    import kproxy

    return str(kproxy.__file__)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
