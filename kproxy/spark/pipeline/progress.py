"""What a batch was: from the JSON that Spark gives of it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from kproxy.spark.pipeline.topic_rows import ROWS


class BatchDone(NamedTuple):
    """One batch that is committed."""

    query: str
    batch: int
    rows_in: int
    """Rows of all sources; those of a source that two steps read count twice, for Spark reads them twice."""
    rows_per_second: float
    rows_out: Mapping[str, int]
    """By topic; of a directory, under its path."""
    lag: int | None
    """Records up to the end of the topics that are not read yet, None where no source says."""
    seconds: float
    committed_at: str
    """ISO 8601, UTC."""


def batch_done(query: str, progress: Mapping[str, Any]) -> BatchDone | None:
    """The batch of a ``StreamingQueryProgress``; None if there was none, as while nothing comes."""
    durations = progress["durationMs"]
    if "addBatch" not in durations:
        return None
    counts = (progress.get("observedMetrics") or {}).get(ROWS) or {}  # left out where a query observes nothing
    took_ms = int(durations["triggerExecution"])
    began = datetime.fromisoformat(progress["timestamp"])
    return BatchDone(
        query=query,
        batch=int(progress["batchId"]),
        rows_in=int(progress["numInputRows"]),
        rows_per_second=float(progress.get("processedRowsPerSecond") or 0.0),
        rows_out={query if name == ROWS and query != "topics" else name: int(rows) for name, rows in counts.items()},
        lag=_lag(progress["sources"]),
        seconds=took_ms / 1000,
        committed_at=(began + timedelta(milliseconds=took_ms)).isoformat(timespec="milliseconds"),
    )


def as_json(done: BatchDone) -> str:
    """One line."""
    return json.dumps(done._asdict())


def _lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    lags = [_behind(source.get("latestOffset"), source.get("endOffset")) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _behind(latest: Any, end: Any) -> int | None:
    """Offsets are topics of partitions of numbers: as Spark's own Kafka source has them."""
    try:
        return sum(
            max(0, int(offset) - int(end.get(topic, {}).get(partition, 0)))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )
    except (AttributeError, TypeError, ValueError):
        return None
