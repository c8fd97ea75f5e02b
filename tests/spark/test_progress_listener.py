import json
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.spark.progress_listener import ProgressListener
from tests.interop.proxy import free_ports

PROGRESS: dict[str, Any] = {
    "id": "q-1",
    "name": "orders",
    "timestamp": "2026-11-22T02:58:50.561Z",
    "batchId": 3,
    "numInputRows": 200,
    "durationMs": {"addBatch": 1000, "triggerExecution": 1439},
    "sources": [{"latestOffset": {"t": {"0": 120}}, "endOffset": {"t": {"0": 100}}}],
}


def told(listener: ProgressListener, name: str, query: str = "orders") -> float | None:
    return listener.registry.get_sample_value(f"kproxy_spark_{name}", {"query": query})


def progressed(listener: ProgressListener, **changes: Any) -> None:
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=json.dumps({**PROGRESS, **changes}))))


@pytest.fixture
def listener() -> ProgressListener:
    made = ProgressListener()
    made.onQueryStarted(SimpleNamespace(id="q-1", name="orders"))
    return made


def test_what_a_batch_was(listener: ProgressListener) -> None:
    progressed(listener)
    progressed(listener, numInputRows=20, durationMs={"addBatch": 100, "triggerExecution": 500})
    assert told(listener, "rows_read_total") == 220
    assert told(listener, "batches_total") == 2
    assert told(listener, "batch_seconds") == 0.5
    assert told(listener, "offsets_behind") == 20


def test_a_trigger_without_a_batch_counts_nothing_and_idle_has_no_lag(listener: ProgressListener) -> None:
    progressed(listener)
    progressed(listener, durationMs={"triggerExecution": 3})
    assert told(listener, "batches_total") == 1
    listener.onQueryIdle(SimpleNamespace(id="q-1"))
    assert told(listener, "offsets_behind") == 0


def test_a_query_is_listed_before_its_first_batch_and_has_no_lag_after_its_end(listener: ProgressListener) -> None:
    assert [told(listener, name) for name in ("query_active", "rows_read_total", "batches_total")] == [1, 0, 0]
    assert told(listener, "queries_failed_total") == 0
    progressed(listener)
    listener.onQueryTerminated(SimpleNamespace(id="q-1", exception=None))
    assert [told(listener, name) for name in ("query_active", "offsets_behind", "batch_seconds")] == [0, None, None]
    assert told(listener, "batches_total") == 1


def test_a_query_that_fails_is_counted(listener: ProgressListener) -> None:
    listener.onQueryTerminated(SimpleNamespace(id="q-1", exception="[STREAM_FAILED] no\n at x"))
    listener.onQueryTerminated(SimpleNamespace(id="q-2", exception=None))
    assert told(listener, "queries_failed_total") == 1
    assert told(listener, "queries_failed_total", "q-2") is None


def test_prometheus_finds_it() -> None:
    [port] = free_ports(1)
    listener = ProgressListener(port=port)
    progressed(listener, name=None)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        assert 'kproxy_spark_offsets_behind{query="q-1"} 20.0' in page.read().decode()
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
        ProgressListener(port=port)
