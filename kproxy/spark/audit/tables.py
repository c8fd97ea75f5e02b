"""The tables that findings are made from, and what they are asked with: one schema for Spark, one for tests."""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.txn.ids import TXN_BITS

#: One row for each record batch: the columns of ``records.as=batches``.
BATCHES: Final = (
    "topic string, partition int, base_offset long, last_offset long, records int, producer_id long, "
    "producer_epoch int, base_sequence int, last_sequence int, attributes int, is_transactional boolean, "
    "is_control boolean, codec string, timestamp_type string, base_timestamp timestamp, max_timestamp timestamp, "
    "size_bytes long, visibility string"
)
#: One row for each record that a read_committed consumer sees, made small by ``content.digest``.
RECORDS: Final = "topic string, partition int, offset long, timestamp timestamp, content long, duplicate_key string"
#: One row for each partition: what is judged lies from ``start`` up to ``end``; from ``reread`` on there is context.
SPANS: Final = "topic string, partition int, log_start long, reread long, start long, end long, stable long"
#: The highest sequence of a producer in a partition, from a former run; ``shown``: of what readers see.
CARRIED: Final = (
    "topic string, partition int, producer_id long, producer_epoch int, shown boolean, last_offset long, "
    "last_sequence int, at timestamp"
)
#: What the transaction log says, one row for each fact (``log_facts``).
FACTS: Final = (
    "fact string, transactional_id string, state string, member string, client_id string, instance_id string, "
    "producer_id long, producer_epoch int, batch_id string, topic string, partition int, offset long, bound long, "
    "group_id string, generation int, at timestamp, log_partition int, log_offset long, detail string"
)
#: What the groups' coordinators answer to OffsetFetch.
FETCHED: Final = "group_id string, topic string, partition int, fetched_offset long"

#: ``visibility`` of what readers see now, or will if it is committed; of the others nothing is ever seen.
SHOWN: Final = ("committed", "undecided")


class Limits(NamedTuple):
    """How much is too much; times in ms."""

    now_ms: int
    window_ms: int = 600_000
    open_ms: int = 900_000
    prepared_ms: int = 3_600_000
    run_length: int = 3


class Tables(NamedTuple):
    """All that a finding may read."""

    batches: DataFrame
    records: DataFrame
    spans: DataFrame
    carried: DataFrame
    facts: DataFrame
    fetched: DataFrame
    limits: Limits

    @property
    def judged(self) -> DataFrame:
        """The batches that no former run has judged."""
        starts = self.spans.select("topic", "partition", "start")
        batches = self.batches.join(F.broadcast(starts), ["topic", "partition"])
        return batches.where("base_offset >= start").drop("start")

    def asked(self, rows: DataFrame, *place: str) -> DataFrame:
        """The rows whose topic, or topic and partition, is one of those that the run was asked for."""
        return rows.join(F.broadcast(self.spans.select(*place).distinct()), [*place], "left_semi")

    def age(self, moment: str) -> Column:
        """Seconds from the time in a column until now."""
        return F.lit(self.limits.now_ms / 1000) - F.unix_micros(F.col(moment)) / 1_000_000

    def of_fact(self, fact: str) -> DataFrame:
        """The rows of one kind of fact."""
        return self.facts.where(F.col("fact") == fact)


def is_transactional_id(producer_id: str) -> Column:
    """Whether a producer id is one of kproxy's transactions (``txn.ids.is_transactional_producer_id``)."""
    return (F.col(producer_id) > 0) & (F.col(producer_id).bitwiseAND(F.lit(TXN_BITS)) == F.lit(TXN_BITS))


def time_of(ms: int) -> Column:
    """A timestamp from ms since 1970."""
    return F.timestamp_millis(F.lit(ms))
