"""Offsets of consumer groups: what transactions decided, against what the groups' coordinators say."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.spark.audit.tables import FETCHED, Tables
from kproxy.spark.kafka_cluster import KafkaCluster

_PLACE = ("group_id", "topic", "partition")


def group_offsets_behind(tables: Tables) -> DataFrame:
    """Partitions where a group stands before the offset that a committed transaction with its outputs decided.

    Who goes on there reads again what has been processed. In the log of one id the later transaction counts, between
    two the later generation, then the larger offset, as kproxy itself has it (``txn.group_offsets``).
    """
    said = F.struct("generation", "offset")
    decided = tables.of_fact("offsets")
    by_id = decided.groupBy(*_PLACE, "transactional_id").agg(
        F.max_by(said, "log_offset").alias("said"), F.max("at").alias("at")
    )
    rows = by_id.groupBy(*_PLACE).agg(
        F.max("said").alias("said"),
        F.max_by("transactional_id", "said").alias("transactional_id"),
        F.max("at").alias("at"),
    )
    rows = rows.join(tables.fetched, [*_PLACE], "left").withColumn("decided_offset", F.col("said.offset"))
    behind = F.coalesce("fetched_offset", F.lit(-1)) < F.col("decided_offset")
    return rows.where(behind).select(
        *_PLACE,
        "decided_offset",
        "fetched_offset",
        (F.col("decided_offset") - F.greatest(F.coalesce("fetched_offset", F.lit(0)), F.lit(0))).alias("behind"),
        "transactional_id",
        "at",
    )


def fetched_offsets(facts: DataFrame, connect: Callable[[], KafkaCluster]) -> DataFrame:
    """What OffsetFetch says now of each group that the log names; asked by Spark's tasks, a group at a time.

    ``connect`` opens a cluster and travels to them; its KafkaError ends the job.
    """

    def ask(rows: Iterable[Any]) -> Iterator[tuple[str, str, int, int]]:
        with connect() as cluster:
            for (group,) in rows:
                for each, offset in cluster.group_offsets(group).items():
                    yield group, each.topic, each.partition, offset

    groups = facts.where(F.col("fact") == "offsets").select("group_id").distinct()
    return facts.sparkSession.createDataFrame(groups.rdd.mapPartitions(ask), FETCHED, verifySchema=False)
