"""Kafka Connect's exactly-once source through kproxy: a worker that is assumed dead continues as a zombie.

Connect keeps configurations and offsets in compacted topics and writes them by transactions, so the broker coordinates
them. `INTEROP_ALL=1` adds `broker-fenced`.
"""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.ports import free_ports
from tests.interop.committed import CommittedReader
from tests.interop.jvm import INTEROP_ALL, running
from tests.interop.proxy import KproxyProcess
from tests.support.clients import DRIVERS, java_program
from tests.support.patience import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_RELEASE: Final = "4.4.0"
_SLF4J: Final = "org.slf4j:slf4j-simple:1.7.36"
_CONNECT: Final = "org.apache.kafka.connect.cli"
_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"


class Workers:
    """Two workers of one cluster, and the connector of `drivers/connect`."""

    def __init__(self, directory: Path, bootstrap: str, name: str) -> None:
        self._directory = directory
        self._name = name
        self._ports = free_ports(2)
        java, *options = java_program(
            "connect", f"org.apache.kafka:connect-runtime:{_RELEASE}", _SLF4J, main=f"{_CONNECT}.ConnectDistributed"
        ).argv
        # The list of what it has as connectors stands beside the sources.
        options[options.index("-cp") + 1] += f":{DRIVERS / 'connect'}"
        self._command = [java, *options]
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "key.converter": _STRING,
            "value.converter": _STRING,
            **{f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "exactly.once.source.support": "enabled",
            "plugin.discovery": "service_load",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
        }

    @contextmanager
    def running(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Both of them, until the block ends."""
        with ExitStack() as stack:
            started = []
            for index, port in enumerate(self._ports):
                settings = {**self._settings, "listeners": f"http://127.0.0.1:{port}"}
                path = self._directory / f"{index}.properties"
                path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
                command = [*self._command, str(path)]
                started.append(stack.enter_context(running(command, self._directory / f"worker-{index}")))
            yield started

    def printed(self, index: int) -> str:
        """What a worker has printed."""
        return (self._directory / f"worker-{index}").read_text(encoding="utf-8")

    def put(self, settings: dict[str, str]) -> None:
        """Make the connector, as soon as the workers are a cluster."""
        self._until(lambda: self._ask(0, f"/connectors/{self._name}/config", settings) is not None)

    def busy(self) -> int:
        """The worker with the task, as soon as there is one."""
        found: list[int] = []

        def look() -> bool:
            status = self._ask(0, f"/connectors/{self._name}/status") or {"tasks": []}
            ids = [task["worker_id"] for task in status["tasks"] if task["state"] == "RUNNING"]
            found[:] = [index for index, port in enumerate(self._ports) if f"127.0.0.1:{port}" in ids]
            return bool(found)

        self._until(look)
        return found[0]

    def _ask(self, index: int, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        url, headers = f"http://127.0.0.1:{self._ports[index]}{path}", {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method="GET" if data is None else "PUT")
        with suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def _until(self, holds: Callable[[], bool]) -> None:
        eventually(holds, otherwise=lambda: self.printed(0)[-6000:])


@pytest.mark.parametrize("home", ["auto", *(["broker-fenced"] if INTEROP_ALL else [])])
def test_a_source_writes_each_record_once_though_one_of_its_workers_is_a_zombie(
    kafka: RealKafka, tmp_path: Path, home: str
) -> None:
    name, count = f"connect-{uuid4().hex[:8]}", 1500
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(name)
    with (
        KproxyProcess(kafka.bootstrap, tmp_path / "log", "--transactions-home", home) as kproxy,
        CommittedReader(kafka.bootstrap, [name]) as reader,
    ):
        workers = Workers(tmp_path, kproxy.bootstrap, name)

        def more(wanted: int) -> None:
            wanted = min(reader.count(name) + wanted, count)
            reader.until(
                lambda: reader.count(name) >= wanted,
                lambda: f"{reader.count(name)} of {wanted}\n{workers.printed(0)[-6000:]}",
            )

        with workers.running() as processes:
            workers.put(
                {"connector.class": "Numbers", "tasks.max": "1", "topic": name, "count": str(count)}
                | {"exactly.once.support": "required", "transaction.boundary": "poll"}
            )
            more(200)
            zombie = workers.busy()
            processes[zombie].send_signal(signal.SIGSTOP)
            reader.read(0.5)
            more(200)
            processes[zombie].send_signal(signal.SIGCONT)
            reader.until(
                lambda: (
                    re.search("InvalidProducerEpochException|ProducerFencedException", workers.printed(zombie))
                    is not None
                ),
                lambda: workers.printed(zombie)[-6000:],
            )
            more(count)
        reader.read(0.5)
        assert [value for _, value in reader.rows(name)] == [str(one) for one in range(count)]
        kproxy.check()
