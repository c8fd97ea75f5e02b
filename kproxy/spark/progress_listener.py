"""How far streaming queries are: for Prometheus, and one log line for each micro-batch.

    spark.streams.addListener(ProgressListener(port=9108))

PySpark gives a source or sink in Python no way to add metrics of its own to StreamingQueryProgress. So this reads what
Spark reports of each micro-batch.
"""

import json
import logging
from contextlib import suppress
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryListener

from kproxy.spark.pipeline.progress import batch_done

_LOG: Final = logging.getLogger(__name__)


class ProgressListener(StreamingQueryListener):
    """Publishes the lag in offsets, rows, and micro-batches, by the name of the query, or else its id."""

    def __init__(self, *, port: int | None = None, address: str = "127.0.0.1") -> None:
        """``port``: where Prometheus finds the metrics, on ``address``; None: nowhere. OSError if it is in use."""
        self.registry = CollectorRegistry()
        query = ["query"]
        self._active = Gauge(
            "kproxy_spark_query_active", "1 while a query runs, 0 after its end.", query, registry=self.registry
        )
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
            try:
                start_http_server(port, address, self.registry)
            except OSError as error:
                raise OSError(error.errno, f"cannot listen on {address}:{port}: {error.strerror}") from None

    def onQueryStarted(self, event: Any) -> None:
        """Publishes a query before its first micro-batch: Prometheus misses the first step of a new counter."""
        name = self._names[str(event.id)] = event.name or str(event.id)
        self._active.labels(name).set(1)
        for counter in (self._rows, self._batches, self._failed):
            counter.labels(name)

    def onQueryProgress(self, event: Any) -> None:
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
        """Counts a query that failed; a query that has ended has no lag."""
        name = self._names.pop(str(event.id), str(event.id))
        self._active.labels(name).set(0)
        for gauge in (self._behind, self._seconds):
            with suppress(KeyError):  # it ended before its first micro-batch
                gauge.remove(name)
        if event.exception is not None:
            self._failed.labels(name).inc()
            _LOG.error("query %s failed: %s", name, str(event.exception).partition("\n")[0])
