"""Transactions that are torn, hang, or have producers of which the log knows nothing."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.spark.audit.tables import SHOWN, Tables, is_transactional_id

_PLACE = ("topic", "partition")
_PART = (*_PLACE, "producer_id", "producer_epoch")


def torn_transactions(tables: Tables) -> DataFrame:
    """Partitions of committed transactions whose data are missing, in whole or in part.

    The decision names each partition that was written, and the offset after its last batch. Partitions are judged that
    end between start and end of the offsets read; their beginning is checked where the log still has it.
    """
    spans = tables.spans.select(*_PLACE, "start", "end")
    named = tables.of_fact("decided").drop("state", "group_id", "generation", "detail")
    named = named.join(F.broadcast(spans), [*_PLACE]).where("offset > start and offset <= end")
    found = tables.batches.where(
        F.col("visibility").isin(*SHOWN) & ~F.col("is_control") & is_transactional_id("producer_id")
    )
    length = F.col("last_sequence") - F.col("base_sequence") + 1
    found = found.groupBy(*_PART).agg(
        F.max("last_offset").alias("last_offset"),
        F.min("base_sequence").alias("first_sequence"),
        (F.max("last_sequence") - F.min("base_sequence") + 1 - F.sum(length)).alias("holes"),
        F.sum("records").alias("records"),
    )
    fault = (
        F.when(F.col("last_offset").isNull(), "all is missing")
        .when(F.col("last_offset") + 1 < F.col("offset"), "the end is missing")
        .when(F.col("holes") > 0, "some in the middle is missing")
        .when((F.col("first_sequence") > 0) & (F.col("bound") >= F.col("start")), "the beginning is missing")
    )
    rows = named.join(found, [*_PART], "left").withColumn("fault", fault).where("fault is not null")
    return rows.select(
        "transactional_id",
        "batch_id",
        *_PART,
        "fault",
        F.col("offset").alias("decided_end_offset"),
        (F.col("last_offset") + 1).alias("found_end_offset"),
        F.coalesce("records", F.lit(0)).alias("found_records"),
        "at",
        "log_partition",
    )


def open_transactions(tables: Tables) -> DataFrame:
    """Transactions with data in the topics that nobody has decided, and that are open for too long."""
    return _waiting(tables, "open", tables.limits.open_ms)


def prepared_transactions(tables: Tables) -> DataFrame:
    """Parts with data in the topics that are prepared and wait for their decision for too long."""
    return _waiting(tables, "prepared", tables.limits.prepared_ms)


def _waiting(tables: Tables, state: str, limit_ms: int) -> DataFrame:
    columns = ("transactional_id", "member", "client_id", "instance_id", "producer_id", "producer_epoch", "at")
    rows = tables.asked(tables.of_fact("part").where(F.col("state") == state), "topic")
    rows = rows.groupBy(*columns).agg(F.concat_ws(", ", F.sort_array(F.collect_set("topic"))).alias("topics"))
    rows = rows.withColumn("seconds", tables.age("at"))
    return rows.where(F.col("seconds") >= limit_ms / 1000)


def stuck_partitions(tables: Tables) -> DataFrame:
    """Partitions whose last stable offset has not moved for too long: whose first undecided batch is too old."""
    undecided = tables.batches.where("visibility = 'undecided'")
    rows = undecided.groupBy(*_PLACE).agg(
        F.min("base_offset").alias("stable_offset"),
        F.min_by("producer_id", "base_offset").alias("producer_id"),
        F.min_by("producer_epoch", "base_offset").alias("producer_epoch"),
        F.min_by("max_timestamp", "base_offset").alias("at"),
        F.sum("records").alias("hidden_records"),
        F.sum("size_bytes").alias("hidden_bytes"),
    )
    rows = rows.withColumn("seconds", tables.age("at"))
    return rows.where(F.col("seconds") >= tables.limits.open_ms / 1000)


def unknown_producers(tables: Tables) -> DataFrame:
    """Producer ids of kproxy's transactions that are undecided, and of which the transaction log says nothing."""
    known = tables.of_fact("known").select("producer_id").distinct()
    rows = tables.batches.where("visibility = 'undecided' and not is_control").where(is_transactional_id("producer_id"))
    return (
        rows.join(known, ["producer_id"], "left_anti")
        .groupBy(*_PART)
        .agg(
            F.min("base_offset").alias("first_offset"),
            F.sum("records").alias("hidden_records"),
            F.sum("size_bytes").alias("hidden_bytes"),
            F.max("max_timestamp").alias("at"),
        )
    )


def unreadable_log(tables: Tables) -> DataFrame:
    """Partitions of the transaction log with a record that this kproxy can't read: nothing after it counts."""
    return tables.of_fact("unreadable").select("log_partition", "log_offset", "detail", "at")
