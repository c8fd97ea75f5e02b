"""Two kproxies with one instance.id in front of a real Kafka."""

import subprocess
import time
from pathlib import Path

import pytest

from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.config import ExitCode
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_TOPIC = "instance-id"


def _produce(client: ClusterClient, value: bytes) -> None:
    assert client.produce(_TOPIC, 0, build_batch([Record(0, 1_700_000_000_000, None, value)])).error_code == 0


def test_the_second_is_refused_and_with_replace_the_first_one_ends(kafka: RealKafka, tmp_path: Path) -> None:
    with ClusterClient(kafka.bootstrap) as admin:
        admin.create_topic(_TOPIC)
        options = ("--instance-id", "one-name")
        one = KproxyProcess(kafka.bootstrap, tmp_path / "one", *options)
        with one, ClusterClient(one.bootstrap, client_id="a") as client:
            _produce(client, b"1")
            two = KproxyProcess(kafka.bootstrap, tmp_path / "two", *options)
            began = time.monotonic()
            refused = subprocess.run(two._command, capture_output=True, timeout=PATIENCE_S, check=False)
            print(f"refused after {time.monotonic() - began:.1f} s")
            assert refused.returncode == ExitCode.INSTANCE_TAKEN
            assert b"another process runs with instance.id = 'one-name'" in refused.stderr
            _produce(client, b"2")
            assert "another process was started with this instance.id" in one.log()
            successor = KproxyProcess(kafka.bootstrap, tmp_path / "three", *options, "--replace")
            began = time.monotonic()
            with successor:
                assert one._process is not None
                assert one._process.wait(PATIENCE_S) == ExitCode.INSTANCE_TAKEN
                print(f"replaced after {time.monotonic() - began:.1f} s")
                assert "another process has taken over this instance.id" in one.log()
                with ClusterClient(successor.bootstrap, client_id="a") as again:
                    _produce(again, b"2")  # a retry
                    _produce(again, b"3")
        data = admin.read_all(_TOPIC, 0)
        batches = [row.value for row in iter_records(data, max_decompressed_bytes=1 << 20) if row.value is not None]
        assert batches == [b"1", b"2", b"3"]
