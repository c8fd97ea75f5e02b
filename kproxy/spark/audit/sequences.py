"""Sequences of idempotent producers: those that occur twice, and those that are missing (KIP-98).

A producer numbers its records in each partition, from 0 for each epoch; after 2^31-1 comes 0 again. So in the order of
offsets the batches of one (producer id, epoch) follow each other without a hole and never go back. Batches that no
reader sees (aborted, or a copy that does not count) use up sequences, but repeat nothing.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from kproxy.spark.audit.tables import SHOWN, Tables

_CYCLE: Final = 1 << 31
_HALF: Final = 1 << 30
PRODUCER: Final = ("topic", "partition", "producer_id", "producer_epoch")


def duplicate_sequences(tables: Tables) -> DataFrame:
    """Batches that readers see whose sequences were there before, whole or in part."""
    rows = numbered(tables).where("not carried and shown and first <= before_shown")
    repeated = F.least("last", "before_shown") - F.col("first") + 1
    return rows.select(
        *PRODUCER,
        F.col("base_offset").alias("first_offset"),
        (F.col("base_offset") + repeated - 1).alias("last_offset"),
        "base_sequence",
        "last_sequence",
        repeated.alias("repeated"),
        F.when(F.col("earlier_offset") < F.col("base_offset"), F.col("earlier_offset")).alias("earlier_offset"),
        "at",
    )


def sequence_gaps(tables: Tables) -> DataFrame:
    """Batches that readers see before which sequences are missing.

    Not where compaction has been at work: it leaves holes. The first batch of a producer counts if the partition has
    lost nothing yet.
    """
    whole = tables.spans.where("log_start = 0 and start = 0").select("topic", "partition", F.lit(True).alias("whole"))
    rows = numbered(tables).join(F.broadcast(whole), ["topic", "partition"], "left")
    rows = rows.join(F.broadcast(_compacted(tables.batches)), ["topic", "partition"], "left_anti")
    known = F.when(F.col("whole"), F.coalesce("before", F.lit(-1))).otherwise(F.col("before"))
    missing = F.col("first") - known - 1
    rows = rows.withColumn("missing", missing).where("not carried and shown and missing > 0")
    behind = F.pmod(F.col("first") - F.col("missing"), F.lit(_CYCLE)).cast("int")
    return rows.select(
        *PRODUCER, "base_offset", behind.alias("first_missing_sequence"), "missing", "base_sequence", "at"
    )


def numbered(tables: Tables) -> DataFrame:
    """Judged batches and what is carried over: sequences without wraps (``first``, ``last``), and the highest before.

    ``before`` is that of all batches, ``before_shown`` that of those which readers see.
    """
    rows = _rows(tables)
    order = Window.partitionBy(*PRODUCER).orderBy("base_offset")
    length = F.pmod(F.col("last_sequence").cast("long") - F.col("base_sequence"), F.lit(_CYCLE)) + 1
    rows = rows.withColumn("turn", _turn(order)).withColumn("turns", F.sum("turn").over(order))
    rows = rows.withColumn("first", F.col("base_sequence") + F.col("turns") * _CYCLE)
    rows = rows.withColumn("last", F.col("first") + length - 1)
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("before", F.max("last").over(earlier))
    rows = rows.withColumn("before_shown", F.max(F.when(F.col("shown"), F.col("last"))).over(earlier))
    same = Window.partitionBy(*PRODUCER, "first")
    return rows.withColumn(
        "earlier_offset", F.min(F.when(F.col("shown") & ~F.col("carried"), F.col("base_offset"))).over(same)
    )


def _turn(order: WindowSpec) -> Column:
    """By how much the number of wraps changes before a batch: a jump of more than half a cycle is one."""
    last, base = F.lag("last_sequence").over(order), F.lag("base_sequence").over(order)
    jump = F.col("base_sequence").cast("long") - last
    wrapped_within = F.when(last < base, 1).otherwise(0)
    return F.when(jump < -_HALF, 1).when(jump > _HALF, -1).otherwise(0) + wrapped_within


def _rows(tables: Tables) -> DataFrame:
    own = tables.judged.where("producer_id >= 0 and base_sequence >= 0 and not is_control").select(
        *PRODUCER,
        F.col("visibility").isin(*SHOWN).alias("shown"),
        "base_offset",
        "last_offset",
        "base_sequence",
        "last_sequence",
        F.col("max_timestamp").alias("at"),
        F.lit(False).alias("carried"),
    )
    former = tables.carried.select(
        *PRODUCER,
        "shown",
        F.col("last_offset").alias("base_offset"),
        "last_offset",
        F.col("last_sequence").alias("base_sequence"),
        "last_sequence",
        "at",
        F.lit(True).alias("carried"),
    )
    return own.unionByName(former)


def _compacted(batches: DataFrame) -> DataFrame:
    """Partitions from which compaction has taken records."""
    thinned = batches.where("not is_control and records < last_offset - base_offset + 1")
    return thinned.select("topic", "partition").distinct()
