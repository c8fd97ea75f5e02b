"""Totals by shop, kept up to date in a compacted topic: an aggregation in update mode, each batch one transaction.

spark-submit shop_totals.py --once, or python shop_totals.py --once; README.md beside it says what it needs.
"""

import argparse
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kproxy.spark import Upsert, register

ORDER = "shop string, amount string"


def totals(lines: DataFrame) -> DataFrame:
    """Number and sum of the orders of each shop; lines that are no order are left out."""
    order = f.from_json(f.col("value").cast("string"), ORDER)
    shop, amount = f.lower(f.trim(order["shop"])), f.replace(order["amount"], f.lit(","), f.lit("."))
    orders = lines.select(shop.alias("shop"), amount.cast("decimal(12, 2)").alias("amount")).dropna()
    sums = orders.groupBy("shop").agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
    return sums.select(f.col("shop").alias("key"), f.to_json(f.struct("orders", "amount")).alias("value"))


def create_compacted(servers: str, topic: str) -> None:
    """Of each key the newest record is kept for ever; others are deleted by and by."""
    admin = AdminClient({"bootstrap.servers": servers})  # the response is lost if nothing refers to it
    try:
        admin.create_topics([NewTopic(topic, 2, config={"cleanup.policy": "compact"})])[topic].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs until it is stopped; with ``--once`` until all that was there at its start is counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:19092", metavar="LIST", help="of kproxy")
    parser.add_argument("--control-socket", default="/tmp/orders/control.sock", metavar="PATH", help="of that kproxy")
    parser.add_argument("--source", default="orders-raw", metavar="TOPIC")
    parser.add_argument("--sink", default="shop-totals", metavar="TOPIC")
    parser.add_argument("--checkpoint", default="/tmp/orders/shop-totals", metavar="PATH")
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args(arguments)
    create_compacted(given.bootstrap_servers, given.sink)

    spark = SparkSession.builder.appName("shop totals").getOrCreate()
    register(spark)
    kproxy = {"kafka.bootstrap.servers": given.bootstrap_servers}
    source = spark.readStream.format("kproxy").options(**kproxy, subscribe=given.source, startingOffsets="earliest")
    upsert = Upsert(
        {
            **kproxy,
            "kproxy.control.socket": given.control_socket,
            "transactional.id": given.sink,
            "topic": given.sink,
        }
    )
    query = totals(source.load()).writeStream.outputMode("update").foreachBatch(upsert)
    query = query.option("checkpointLocation", given.checkpoint)
    query = query.trigger(availableNow=True) if given.once else query.trigger(processingTime="5 seconds")
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
