"""What is not protected, and what readers see: shares and sums by topic."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.spark.audit.tables import Tables


def protection(tables: Tables) -> DataFrame:
    """For each topic: how much was written without a producer id, and so can be written twice by a retry.

    Such producers can't be told apart in the log; counted are the partitions that they wrote to.
    """
    rows = tables.judged.where("not is_control")
    bare = F.col("producer_id") < 0
    totals = rows.groupBy("topic").agg(
        F.sum("size_bytes").alias("bytes"),
        F.sum(F.when(bare, F.col("size_bytes")).otherwise(0)).alias("unprotected_bytes"),
        F.sum("records").alias("records"),
        F.sum(F.when(bare, F.col("records")).otherwise(0)).alias("unprotected_records"),
        F.countDistinct(F.when(~bare, F.col("producer_id"))).alias("protected_producers"),
        F.countDistinct(F.when(bare, F.col("partition"))).alias("unprotected_partitions"),
        F.max(F.when(bare, F.col("max_timestamp"))).alias("at"),
    )
    return totals.withColumn("unprotected_share", F.col("unprotected_bytes") / F.col("bytes"))


def unprotected(tables: Tables) -> DataFrame:
    """The topics of which a part is not protected."""
    return protection(tables).where("unprotected_bytes > 0")


def visibility(tables: Tables) -> DataFrame:
    """For each topic: batches, records and bytes that are committed, aborted, undecided, or markers (control)."""
    return tables.judged.groupBy("topic", "visibility").agg(
        F.count("*").alias("batches"),
        F.sum("records").alias("records"),
        F.sum("size_bytes").alias("bytes"),
        F.min("base_timestamp").alias("oldest"),
        F.max("max_timestamp").alias("newest"),
    )


def stable_offsets(tables: Tables) -> DataFrame:
    """For each partition: its last stable offset, and the records below and above it."""
    below = F.when(F.col("visibility") != "undecided", F.col("records")).otherwise(0)
    above = F.when(F.col("visibility") == "undecided", F.col("records")).otherwise(0)
    counts = (
        tables.judged.where("not is_control")
        .groupBy("topic", "partition")
        .agg(F.sum(below).alias("records_below"), F.sum(above).alias("records_above"))
    )
    spans = tables.spans.select("topic", "partition", "start", "end", F.col("stable").alias("stable_offset"))
    return spans.join(counts, ["topic", "partition"], "left").fillna(0, ["records_below", "records_above"])
