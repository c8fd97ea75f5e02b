"""kproxy and a fake broker as processes of their own, and what kproxy uses of the machine."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.cluster_client import ClusterClient
from verification.hostile.stretches import LongestStretch

PATIENCE = 600.0
#: After so long the fake broker is taken for broken, in seconds.
_BROKER_PATIENCE = 3.0


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits until something is so; TimeoutError if it does not become so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


class Besieged:
    """A running kproxy in front of a fake broker that holds the topic ``t``."""

    def __init__(
        self,
        process: subprocess.Popen[str],
        log: Path,
        broker: "_Broker",
        longest_stretch: LongestStretch,
        *,
        opens: bool = True,
    ) -> None:
        """``opens``: clients need neither TLS nor a login, so that a witness can write and read."""
        self.longest_stretch = longest_stretch
        self._process = process
        self._log = log
        self._broker = broker
        self._opens = opens
        self._count = 0
        wait_for(lambda: bool(self._started()))
        [started] = self._started()
        self.http = started["http"]
        self.port = int(started["listen"].rpartition(":")[2])
        wait_for(lambda: self.metric("kproxy_ready") == 1)
        if opens:
            self.make_topic()
        self.serves_others()

    @property
    def memory(self) -> int:
        """Resident bytes of kproxy."""
        [line] = [line for line in self._proc("status").read_text().splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    @property
    def processor_seconds(self) -> float:
        """Processor time that kproxy has used: as its loop runs in one thread, nothing stalls it for longer."""
        fields = self._proc("stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def open_files(self) -> int:
        """Open file descriptors of kproxy."""
        return sum(1 for _ in self._proc("fd").iterdir())

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def tracebacks(self) -> int:
        """Exceptions in kproxy's log that kproxy did not expect."""
        return self._log.read_text().count("Traceback")

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 if it is not on the page."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=PATIENCE) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def client(self) -> ClusterClient:
        """A client that means no harm."""
        return ClusterClient(f"127.0.0.1:{self.port}", client_id="witness", timeout=PATIENCE)

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        """A plain connection, from an address of this host, to the port to bootstrap from."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE, (address, 0))

    def make_topic(self) -> None:
        """Makes the topic ``t`` if it is not there: hostile clients may delete it, or end the fake broker."""
        self._broker.revive()
        try:
            wait_for(self._has_topic, _BROKER_PATIENCE)
        except TimeoutError:  # it runs, and answers nobody any more
            self._broker.revive(kills=True)
            wait_for(self._has_topic)

    def _has_topic(self) -> bool:
        try:
            with self.client() as client:
                if not client.metadata("t").topics[0].error_code:
                    return True
                client.create_topic("t")
        except (OSError, EOFError):  # kproxy has not found the broker again yet
            return False
        return True

    def serves_others(self) -> None:
        """A new client writes a record and reads it again; AssertionError if it can't, or if kproxy logged a bug."""
        if self._opens:
            self._count += 1
            value = b"witness %d;" % self._count
            record = Record(0, int(time.time() * 1000), None, value, ())
            with self.client() as client:
                assert client.produce("t", 0, build_batch([record])).error_code == 0
                assert value in client.read_all("t")
        assert self.alive
        assert not self.tracebacks

    def _proc(self, name: str) -> Path:
        return Path(f"/proc/{self._process.pid}/{name}")

    def _started(self) -> list[dict[str, str]]:
        return [line for line in self._lines() if "listen" in line][:1]

    def _lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.endswith("}")]


class _Broker:
    """The fake broker; some hostile requests end it, which is no fault of kproxy's."""

    def __init__(self, stack: ExitStack) -> None:
        """Its processes end with ``stack``."""
        self._stack = stack
        self._process, self.bootstrap = self._start("0")

    def revive(self, *, kills: bool = False) -> None:
        """Starts it again, empty, if it has ended; ``kills``: in any case."""
        if kills:
            self._process.kill()
            self._process.wait()
        elif self._process.poll() is None:
            return
        self._process, _ = self._start(self.bootstrap.rpartition(":")[2])

    def _start(self, port: str) -> tuple[subprocess.Popen[str], str]:
        process = self._stack.enter_context(_python("-m", "kproxy.testing.fake_broker", "--port", port))
        assert process.stdout is not None
        return process, process.stdout.readline().strip()


@contextmanager
def besieged(directory: Path, *options: str, opens: bool = True) -> Iterator[Besieged]:
    """The two processes, until the block ends; kproxy's log is in ``directory``."""
    with ExitStack() as stack:
        broker = _Broker(stack)
        log, stretches = directory / "kproxy.log", directory / "longest-stretch"
        longest = LongestStretch(stretches)
        watched = ["-m", "verification.hostile.stretches", str(stretches)]
        command = [*watched, "run", f"--bootstrap-servers={broker.bootstrap}", "--listen=127.0.0.1:0"]
        output = stack.enter_context(log.open("w"))
        kproxy = stack.enter_context(_python(*command, "--http=127.0.0.1:0", "--log-format=json", *options, to=output))
        yield Besieged(kproxy, log, broker, longest, opens=opens)


@contextmanager
def _python(*arguments: str, to: int | IO[str] = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    errors = subprocess.DEVNULL if to == subprocess.PIPE else to
    with subprocess.Popen([sys.executable, *arguments], stdout=to, stderr=errors, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
