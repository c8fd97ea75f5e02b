"""How far streaming queries are: for Prometheus, and one log line for each micro-batch.

    spark.streams.addListener(ProgressListener(port=9108))

PySpark gives a source or sink in Python no way to add metrics of its own to StreamingQueryProgress. So this reads what
Spark reports of each micro-batch.
"""

import json
import logging
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryListener

from kproxy.spark.pipeline.progress import batch_done

_LOG: Final = logging.getLogger(__name__)


class ProgressListener(StreamingQueryListener):
    """Publishes the lag in offsets, rows, and micro-batches, by the name of the query, or else its id."""

    def __init__(self, *, port: int | None = None, address: str = "127.0.0.1") -> None:
        """``port``: where Prometheus finds the metrics, on ``address``; None: nowhere. OSError if it is taken."""
        self.registry = CollectorRegistry()
        query = ["query"]
        self._behind = Gauge(
            "kproxy_spark_offsets_behind", "Offsets that a query has still to read.", query, registry=self.registry
        )
        self._rows = Counter("kproxy_spark_rows_read", "Rows that a query has read.", query, registry=self.registry)
        self._batches = Counter(
            "kproxy_spark_batches",
            "Micro-batches that are committed; with the sink kproxy each is one transaction.",
            query,
            registry=self.registry,
        )
        self._seconds = Gauge(
            "kproxy_spark_batch_seconds", "How long the last micro-batch took.", query, registry=self.registry
        )
        self._failed = Counter(
            "kproxy_spark_queries_failed", "Queries that ended with an error.", query, registry=self.registry
        )
        self._names: dict[str, str] = {}
        if port is not None:
            start_http_server(port, address, self.registry)

    def onQueryStarted(self, event: Any) -> None:
        """Remembers the name of a query."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:
        """Publishes a micro-batch."""
        progress = json.loads(event.progress.json)
        name = progress.get("name") or progress["id"]
        done = batch_done(name, progress)
        if done is None:
            return
        self._rows.labels(name).inc(done.rows_in)
        self._batches.labels(name).inc()
        self._seconds.labels(name).set(done.seconds)
        if done.lag is not None:
            self._behind.labels(name).set(done.lag)
        behind = "unknown" if done.lag is None else done.lag
        _LOG.info("query %s: batch %d, %d rows, %s offsets behind", name, done.batch, done.rows_in, behind)

    def onQueryIdle(self, event: Any) -> None:
        """A query without new rows has read everything."""
        if (name := self._names.get(str(event.id))) is not None:
            self._behind.labels(name).set(0)

    def onQueryTerminated(self, event: Any) -> None:
        """Counts a query that failed."""
        name = self._names.pop(str(event.id), str(event.id))
        if event.exception is not None:
            self._failed.labels(name).inc()
            _LOG.error("query %s failed: %s", name, str(event.exception).partition("\n")[0])
