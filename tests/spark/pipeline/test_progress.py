import json
from typing import Any

from kproxy.spark.pipeline.progress import as_json, batch_done

PROGRESS: dict[str, Any] = {
    "timestamp": "2026-11-22T02:58:50.561Z",
    "batchId": 3,
    "numInputRows": 200,
    "processedRowsPerSecond": 17.3,
    "durationMs": {"addBatch": 1000, "triggerExecution": 1439},
    "sources": [
        {"latestOffset": {"t": {"0": 120, "1": 7}}, "endOffset": {"t": {"0": 100}}},
        {"latestOffset": None, "endOffset": {"logOffset": 0}},
    ],
    "observedMetrics": {"rows": {"clean": 50, "totals": 0}},
}


def test_a_batch() -> None:
    done = batch_done("topics", PROGRESS)
    assert done is not None
    assert (done.batch, done.rows_in, done.rows_per_second, done.seconds) == (3, 200, 17.3, 1.439)
    assert (done.rows_out, done.lag) == ({"clean": 50, "totals": 0}, 27)
    assert done.committed_at == "2026-11-22T02:58:52.000+00:00"
    assert json.loads(as_json(done))["rows_out"] == {"clean": 50, "totals": 0}


def test_a_directory_s_rows_stand_under_its_path() -> None:
    done = batch_done("/out", {**PROGRESS, "observedMetrics": {"rows": {"rows": 8}}, "sources": []})
    assert done is not None
    assert (done.rows_out, done.lag) == ({"/out": 8}, None)


def test_a_trigger_without_a_batch() -> None:
    assert batch_done("topics", {**PROGRESS, "durationMs": {"triggerExecution": 3}}) is None


def test_offsets_of_other_sources_are_no_lag() -> None:
    done = batch_done("topics", {**PROGRESS, "sources": [{"latestOffset": {"t": 3}, "endOffset": {"t": {}}}]})
    assert done is not None
    assert done.lag is None
