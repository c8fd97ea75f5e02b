"""Records that occur twice by their content, from any writer and under any producer id."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kproxy.spark.audit.tables import Tables

#: Offsets of a partition that one task reads, where records are matched with batches.
_STRETCH: Final = 1 << 18
#: A record that is there twice, and its time.
REPEATED: Final = ("topic", "partition", "offset", "timestamp")
_RUN: Final = ("topic", "partition", "producer_id")


def digest(records: DataFrame, key: str | None) -> DataFrame:
    """Of records with key and value: a hash of both, and what the key expression makes of them (null without one)."""
    content = F.xxhash64(F.col("key").isNull(), "key", F.col("value").isNull(), "value")
    named = F.lit(None) if key is None else F.expr(key)
    return records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        content.alias("content"),
        named.cast("string").alias("duplicate_key"),
    )


def duplicate_keys(tables: Tables) -> DataFrame:
    """Values of the user's key expression that more than one record of a topic has."""
    starts = tables.spans.select("topic", "partition", "start")
    records = tables.records.where("duplicate_key is not null").join(F.broadcast(starts), ["topic", "partition"])
    place = F.struct(F.col("partition"), F.col("offset"))
    order = F.struct("timestamp", "partition", "offset")
    found = records.groupBy("topic", "duplicate_key").agg(
        F.count("*").alias("records"),
        F.min_by(place, order).alias("first"),
        F.max_by(place, order).alias("last"),
        F.min("timestamp").alias("first_at"),
        F.max("timestamp").alias("at"),
        F.bool_or(F.col("offset") >= F.col("start")).alias("is_new"),
    )
    return found.where("records > 1 and is_new").select(
        "topic",
        "duplicate_key",
        (F.col("records") - 1).alias("repeated"),
        F.col("first.partition").alias("first_partition"),
        F.col("first.offset").alias("first_offset"),
        F.col("last.partition").alias("last_partition"),
        F.col("last.offset").alias("last_offset"),
        "first_at",
        "at",
    )


def later_of_a_key(tables: Tables, _found: DataFrame) -> DataFrame:
    """``REPEATED``: of the records that share a key, all but the first of each topic."""
    order = Window.partitionBy("topic", "duplicate_key").orderBy("timestamp", "partition", "offset")
    records = tables.records.where("duplicate_key is not null")
    starts = F.broadcast(tables.spans.select("topic", "partition", "start"))
    rows = records.withColumn("position", F.row_number().over(order)).join(starts, ["topic", "partition"])
    return rows.where("position > 1 and offset >= start").select(*REPEATED)


def within_offsets(tables: Tables, found: DataFrame) -> DataFrame:
    """``REPEATED``: the records between the offsets of each row, both included."""
    offset = F.explode(F.sequence("first_offset", "last_offset")).alias("offset")
    offsets = found.select("topic", "partition", offset)
    return tables.records.join(offsets, ["topic", "partition", "offset"], "left_semi").select(*REPEATED)


def identical_runs(tables: Tables) -> DataFrame:
    """Runs of records, equal byte by byte in key and value, that the same producer wrote to the partition before.

    Producers without an id can't be told apart, and count as one. A run is found by a hash of each ``run_length``
    records in a row; runs of equal hashes at one distance are one run.
    """
    limits = tables.limits
    order = Window.partitionBy(*_RUN).orderBy("offset")
    rows = _with_producers(tables)
    ahead = [F.lead("content", step).over(order) for step in range(limits.run_length)]
    rows = rows.select(
        *_RUN,
        "offset",
        "timestamp",
        F.row_number().over(order).alias("position"),
        F.lead("offset", limits.run_length - 1).over(order).alias("end_offset"),
        F.xxhash64(*ahead).alias("shingle"),
    ).where("end_offset is not null")
    return _islands(_repeated(rows, tables), limits.run_length)


def _repeated(rows: DataFrame, tables: Tables) -> DataFrame:
    """Beginnings of ``run_length`` records that were there before, within the window, and how far back."""
    before = Window.partitionBy(*_RUN, "shingle").orderBy("position")
    rows = rows.select(
        "*",
        (F.col("position") - F.lag("position").over(before)).alias("distance"),
        F.lag("offset").over(before).alias("earlier_offset"),
        ((F.unix_micros("timestamp") - F.unix_micros(F.lag("timestamp").over(before))) / 1_000_000).alias("seconds"),
    )
    starts = tables.spans.select("topic", "partition", "start")
    near = F.abs("seconds") <= tables.limits.window_ms / 1000
    return rows.where(near).join(F.broadcast(starts), ["topic", "partition"]).where("end_offset >= start")


def _islands(rows: DataFrame, run_length: int) -> DataFrame:
    order = Window.partitionBy(*_RUN, "distance").orderBy("position")
    rows = rows.withColumn("island", F.col("position") - F.row_number().over(order))
    return (
        rows.groupBy(*_RUN, "distance", "island")
        .agg(
            F.min("offset").alias("first_offset"),
            F.max("end_offset").alias("last_offset"),
            F.min("earlier_offset").alias("earlier_offset"),
            (F.count("*") + run_length - 1).alias("repeated"),
            F.max("seconds").alias("seconds"),
            F.max("timestamp").alias("at"),
        )
        .drop("distance", "island")
    )


def _with_producers(tables: Tables) -> DataFrame:
    """Records with the producer id of their batch.

    Offsets are cut into stretches, so that a partition of any size is spread over tasks.
    """
    stretch = F.explode(F.sequence(F.floor(F.col("base_offset") / _STRETCH), F.floor(F.col("last_offset") / _STRETCH)))
    batches = tables.batches.where("not is_control").withColumn("stretch", stretch)
    heads = batches.select(
        "topic",
        "partition",
        "stretch",
        F.greatest("base_offset", F.col("stretch") * _STRETCH).alias("offset"),
        F.col("producer_id").alias("head_producer"),
        F.lit(0).alias("rank"),
    )
    records = tables.records.select(
        "topic",
        "partition",
        F.floor(F.col("offset") / _STRETCH).alias("stretch"),
        "offset",
        F.lit(1).alias("rank"),
        "timestamp",
        "content",
    )
    order = Window.partitionBy("topic", "partition", "stretch").orderBy("offset", "rank")
    both = records.unionByName(heads, allowMissingColumns=True)
    both = both.withColumn("producer_id", F.last("head_producer", ignorenulls=True).over(order))
    return both.where("rank = 1").select(*_RUN, "offset", "timestamp", "content")
