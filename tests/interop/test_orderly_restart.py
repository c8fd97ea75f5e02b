"""An old client before and after kproxy is stopped in good order and started again, on a real broker."""

import base64
from pathlib import Path
from typing import Any

import pytest

from kproxy.codec.batch import iter_records
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.catalog import CLIENTS
from tests.interop.proxy import KproxyProcess
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_TOPIC = "orderly-restart"
_RECORDS = 20
OLD = next(client for client in CLIENTS if client.name == "kafka-python-1.4.7-pinned-0.9")


def test_equal_records_without_timestamps_are_all_written(kafka: RealKafka, tmp_path: Path) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(_TOPIC, 1)
    equal: dict[str, Any] = {"p": 0, "k": None, "v": base64.b64encode(b"open").decode(), "ts": None, "h": []}
    step = {"op": "produce", "topic": _TOPIC, "codec": "none", "chunk": 10, "timeout_ms": 20_000}
    kproxy = KproxyProcess(kafka.bootstrap, tmp_path / "log")
    for _ in range(2):
        with kproxy:
            options = {**OLD.options, "producer": {"client_id": "equal", "acks": "all"}}
            job = {
                "bootstrap": kproxy.bootstrap,
                "options": options,
                "steps": [{**step, "records": [equal] * _RECORDS}],
            }
            [result] = run_driver(OLD.install(), job)
            assert "error" not in result, result["error"]
            kproxy.check()
    assert kproxy.log().count("stopped; nothing is left") == 2
    with ClusterClient(kafka.bootstrap) as client:
        rows = list(iter_records(client.read_all(_TOPIC, 0), max_decompressed_bytes=1 << 20))
    assert [row.value for row in rows] == [b"open"] * 2 * _RECORDS
