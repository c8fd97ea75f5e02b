"""kproxy and a fake broker as processes of their own, what kproxy uses of the machine, and a harmless client."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kproxy.codec.batch import build_batch
from kproxy.testing.client import ClusterClient
from tests.net.harness import records

PATIENCE = 20.0


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so; TimeoutError if it does not become so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


class Besieged:
    """A running kproxy in front of a fake broker that holds the topic ``t``."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self._count = 0
        started: list[dict[str, str]] = []
        wait_for(lambda: bool(started.extend(line for line in self._lines() if "listen" in line) or started))
        self._http = started[0]["http"]
        self.port = int(started[0]["listen"].rpartition(":")[2])
        wait_for(lambda: self.metric("kproxy_ready") == 1)
        with self.client() as client:
            client.create_topic("t")
        self.serves_others()

    @property
    def memory(self) -> int:
        """Resident bytes of kproxy."""
        [line] = [line for line in self._proc("status").read_text().splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    @property
    def open_files(self) -> int:
        """Open file descriptors of kproxy."""
        return sum(1 for _ in self._proc("fd").iterdir())

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 if it is not on the page."""
        with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=PATIENCE) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def client(self) -> ClusterClient:
        """A client that means no harm."""
        return ClusterClient(f"127.0.0.1:{self.port}", client_id="witness", timeout=PATIENCE)

    def connect(self) -> socket.socket:
        """A plain connection to the port to bootstrap from."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def serves_others(self) -> None:
        """A new client writes a record and reads it again; AssertionError if it can't, or if kproxy logged a bug."""
        self._count += 1
        value = b"witness %d;" % self._count
        with self.client() as client:
            assert client.produce("t", 0, build_batch(records(value))).error_code == 0
            assert value in client.read_all("t")
        assert self._process.poll() is None
        assert "Traceback" not in self._log.read_text()

    def _proc(self, name: str) -> Path:
        return Path(f"/proc/{self._process.pid}/{name}")

    def _lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.endswith("}")]


@contextmanager
def besieged(directory: Path, *options: str) -> Iterator[Besieged]:
    """The two processes, until the block ends."""
    with _python("-m", "kproxy.testing.fake_broker") as broker:
        assert broker.stdout is not None
        bootstrap = broker.stdout.readline().strip()
        log = directory / "kproxy.log"
        command = ["-m", "kproxy", "run", f"--bootstrap-servers={bootstrap}", "--listen=127.0.0.1:0"]
        with (
            log.open("w") as output,
            _python(*command, "--http=127.0.0.1:0", "--log-format=json", *options, to=output) as kproxy,
        ):
            yield Besieged(kproxy, log)


@contextmanager
def _python(*arguments: str, to: int | IO[str] = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=to, stderr=None if to == subprocess.PIPE else to, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
