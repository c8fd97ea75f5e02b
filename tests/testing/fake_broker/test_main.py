"""The fake broker as a program: prints where it listens, serves, stops when interrupted."""

import signal
import subprocess
import sys

from kproxy.testing.cluster_client import ClusterClient


def test_it_prints_its_addresses_and_serves() -> None:
    command = [sys.executable, "-m", "kproxy.testing.fake_broker", "--port", "0", "--brokers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            bootstrap = process.stdout.readline().strip()
            with ClusterClient(bootstrap, timeout=60) as client:
                client.create_topic("t", replication=2)
                assert [f"{b.host}:{b.port}" for b in client.metadata().brokers] == bootstrap.split(",")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
