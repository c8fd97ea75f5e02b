"""The sandbox as a user runs it: a child process that serves clients until Ctrl-C, and leaves nothing behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.ports import free_ports

TIMEOUT_S = 110


def run_sandbox(*options: str) -> "subprocess.Popen[str]":
    http, listen, *_ = free_ports(102)  # a port for each of 100 brokers follows
    command = [sys.executable, "-u", "-m", "kproxy", "sandbox", "--broker", "fake", "--http", f"127.0.0.1:{http}"]
    return subprocess.Popen([*command, "--listen", f"127.0.0.1:{listen}", *options], stdout=subprocess.PIPE, text=True)


def test_clients_find_the_topics_through_kproxy_until_ctrl_c() -> None:
    with run_sandbox("--json", "--topic", "readings:6") as process:
        assert process.stdout is not None
        addresses = json.loads(process.stdout.readline())
        assert addresses["topics"] == {"readings": 6}
        assert addresses["bootstrap.servers"] != addresses["broker"]
        with ClusterClient(addresses["bootstrap.servers"]) as client:
            assert [client.offset("readings", partition) for partition in range(6)] == [0] * 6
        listed = subprocess.run(
            [sys.executable, "-m", "kproxy", "txn", "list", "--json", "--socket", addresses["control.socket"]],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        assert listed.stdout.strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    assert not Path(addresses["control.socket"]).parent.exists()


def test_people_read_addresses_topics_and_what_to_try() -> None:
    with run_sandbox() as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)
    text = "".join(lines)
    assert "bootstrap.servers" in text
    assert "orders (3 partitions), payments (3 partitions)" in text


@pytest.mark.parametrize("topic", ["a b", "", "..", "orders:0", "orders:1000", "o" * 250])
def test_a_topic_that_kafka_would_refuse_is_named_with_what_is_valid(topic: str) -> None:
    command = [sys.executable, "-m", "kproxy", "sandbox", "--topic", topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 2
    assert repr(topic) in ended.stderr
    assert "1 to 999 partitions" in ended.stderr
