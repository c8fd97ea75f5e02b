"""What a run leaves to the next one, so that nothing is missed at the boundary between them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kproxy.spark.audit.audit_state import PartitionProgress, State
from kproxy.spark.audit.offset_spans import Span
from kproxy.spark.audit.sequences import PRODUCER, numbered
from kproxy.spark.audit.tables import CARRIED, Tables

#: Its directory, in that of the run.
CARRIED_TABLE: Final = "carried"


def carried(spark: SparkSession, out: Path, state: State | None) -> DataFrame:
    """What the last run left; empty if there was none."""
    if state is None:
        return spark.createDataFrame([], CARRIED)
    return spark.read.schema(CARRIED).parquet(local(out / f"run={state.run}" / CARRIED_TABLE))


def local(path: Path) -> str:
    """A path as Spark names it, whatever its own file system is."""
    return f"file://{path.absolute()}"


def carry(tables: Tables, oldest_ms: int) -> DataFrame:
    """The highest sequence of each producer below the last stable offset, from this run and those before.

    Producers that wrote nothing since ``oldest_ms`` are left out; those of partitions that this run did not look at
    stay as they are.
    """
    stable = F.broadcast(tables.spans.select("topic", "partition", "start", "stable"))
    rows = numbered(tables).join(stable, ["topic", "partition"])
    rows = rows.where("base_offset < greatest(start, stable)")
    newest = F.max_by(F.struct("last_offset", "last_sequence", "at"), "last").alias("newest")
    found = rows.groupBy(*PRODUCER, "shown").agg(newest).select(*PRODUCER, "shown", "newest.*")
    elsewhere = tables.carried.join(stable, ["topic", "partition"], "left_anti")
    fresh = F.coalesce(F.col("at") >= F.timestamp_millis(F.lit(oldest_ms)), F.lit(True))
    return found.unionByName(elsewhere).where(fresh)


def next_places(tables: Tables, spans: Sequence[Span], state: State | None) -> tuple[PartitionProgress, ...]:
    """Where the next run begins: at the last stable offset, for what is undecided is judged again.

    Partitions that this run was not asked for stay as they were.
    """
    near = tables.batches.join(F.broadcast(_newest(tables)), ["topic", "partition"])
    near = near.where("max_timestamp >= since").groupBy("topic", "partition").agg(F.min("base_offset").alias("reread"))
    reread = {(row["topic"], row["partition"]): int(row["reread"]) for row in near.collect()}
    offsets = {(span.topic, span.partition): max(span.start, span.stable) for span in spans}
    found = (PartitionProgress(*key, offset, min(reread.get(key, offset), offset)) for key, offset in offsets.items())
    former = state.places if state is not None else ()
    return (*found, *(place for place in former if (place.topic, place.partition) not in offsets))


def _newest(tables: Tables) -> DataFrame:
    """Since when each partition's records are within the window of its newest one."""
    window = F.make_dt_interval(secs=F.lit(tables.limits.window_ms / 1000))
    newest = tables.batches.groupBy("topic", "partition").agg(F.max("max_timestamp").alias("newest"))
    return newest.select("topic", "partition", (F.col("newest") - window).alias("since"))
