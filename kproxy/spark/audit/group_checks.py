"""Offsets of consumer groups: what transactions decided, against what the groups' coordinators say."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.spark.audit.log_facts import made_of
from kproxy.spark.audit.tables import FETCHED, Tables
from kproxy.spark.kafka_cluster import KafkaCluster

_PLACE = ("group_id", "topic", "partition")


def group_offsets_behind(tables: Tables) -> DataFrame:
    """Partitions where a group's offset is lower than the offset that a committed transaction with its outputs decided.

    A consumer that starts there reads again what has been processed. In the log of one id the later transaction counts,
    between two ids the later generation, then the larger offset, as kproxy itself has it (``txn.group_offsets``).
    """
    return _lower(tables).where("reason is null").drop("reason")


def unknown_groups(tables: Tables) -> DataFrame:
    """The same where nothing can be said: the topic was recreated since, or the group was deleted."""
    return _lower(tables).where("reason is not null").drop("behind")


def _lower(tables: Tables) -> DataFrame:
    said = F.struct("generation", "offset")
    decided = tables.asked(tables.of_fact("offsets"), "topic", "partition")
    by_id = decided.groupBy(*_PLACE, "transactional_id").agg(
        F.max_by(said, "log_offset").alias("said"), F.max("at").alias("at")
    )
    rows = by_id.groupBy(*_PLACE).agg(
        F.max("said").alias("said"),
        F.max_by("transactional_id", "said").alias("transactional_id"),
        F.max("at").alias("at"),
    )
    ends = F.broadcast(tables.spans.select("topic", "partition", "end"))
    present = F.broadcast(tables.fetched.select("group_id", F.lit(True).alias("present")).distinct())
    rows = rows.join(tables.fetched, [*_PLACE], "left").join(ends, ["topic", "partition"])
    rows = rows.join(present, ["group_id"], "left").withColumn("decided_offset", F.col("said.offset"))
    reason = F.when(F.col("decided_offset") > F.col("end"), "the partition ends before the decided offset").when(
        F.col("present").isNull(), "the group has no offsets: it was deleted, or they have expired"
    )
    lower = F.coalesce("fetched_offset", F.lit(-1)) < F.col("decided_offset")
    return rows.where(lower).select(
        *_PLACE,
        "decided_offset",
        "fetched_offset",
        (F.col("decided_offset") - F.greatest(F.coalesce("fetched_offset", F.lit(0)), F.lit(0))).alias("behind"),
        reason.alias("reason"),
        "transactional_id",
        "at",
    )


def fetched_offsets(
    facts: DataFrame, topics: Collection[str], connect: Callable[[], KafkaCluster], *, few: bool
) -> DataFrame:
    """What OffsetFetch says now of each group that the log names with one of the topics; asked by Spark's tasks.

    ``connect`` opens a cluster and travels to them; its KafkaError ends the job. ``few`` as in ``made_of``.
    """

    def ask(rows: Iterable[Any]) -> Iterator[tuple[str, str, int, int]]:
        with connect() as cluster:
            for (group,) in rows:
                for each, offset in cluster.group_offsets(group).items():
                    yield group, each.topic, each.partition, offset

    named = facts.where((F.col("fact") == "offsets") & F.col("topic").isin(*topics))
    groups = named.select("group_id").distinct()
    return made_of(groups, ask, FETCHED, few=few)
