"""kproxy and a fake broker as processes of their own, and what kproxy uses of the machine."""

import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import IO

import trustme

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.cluster_client import ClusterClient
from verification.hostile.stretches import LongestStretch
from verification.hostile.wrong_broker import WrongBroker

PATIENCE = 600.0
#: After so long the fake broker is taken for broken, in seconds.
_BROKER_PATIENCE = 3.0
#: A pod that asks for the sidecar.
_REVIEW = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "shop",
            "operation": "CREATE",
            "object": {
                "metadata": {
                    "labels": {"kproxy.io/inject": "true"},
                    "annotations": {"kproxy.io/bootstrap-servers": "kafka:9092"},
                },
                "spec": {"containers": [{"name": "shipper", "image": "shipper:2.4"}]},
            },
        },
    }
).encode()


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits until something is so; TimeoutError if it does not become so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


class Target(ABC):
    """A running process of kproxy's, and what it uses of the machine."""

    #: What an honest client asks beside the attacks: method, path and body.
    honest_request: tuple[str, str, bytes | None] = ("GET", "/healthz", None)

    def __init__(self, process: subprocess.Popen[str], log: Path, longest_stretch: LongestStretch) -> None:
        """Waits until it listens; ``log``: its output, as JSON."""
        self.longest_stretch = longest_stretch
        #: Resident bytes before the first attack.
        self.idle_memory = 0
        #: How long an honest client had to wait in an attack, where the attack itself measures that, in seconds.
        self.waits: list[float] = []
        self._process = process
        self._log = log
        wait_for(lambda: bool(self._started()))
        [self._listening] = self._started()
        self.port = int(self._listening["listen"].rpartition(":")[2])

    @abstractmethod
    def honest_connection(self, patience: float) -> HTTPConnection:
        """The connection of an honest client, not yet open; ``patience``: its time-out, in seconds."""

    @property
    def memory(self) -> int:
        """Resident bytes of kproxy."""
        return self._status("VmRSS:")

    @property
    def peak(self) -> int:
        """The most resident bytes since the last ``forget_peak``."""
        return self._status("VmHWM:")

    def forget_peak(self) -> None:
        """``peak`` counts from now on."""
        self._proc("clear_refs").write_text("5")

    def _status(self, field: str) -> int:
        [line] = [line for line in self._proc("status").read_text().splitlines() if line.startswith(field)]
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

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        """A plain connection, from an address of this host, to the port to bootstrap from, or for reviews."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE, (address, 0))

    def _proc(self, name: str) -> Path:
        return Path(f"/proc/{self._process.pid}/{name}")

    def _started(self) -> list[dict[str, str]]:
        return [line for line in self._lines() if "listen" in line][:1]

    def _lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.endswith("}")]


class Besieged(Target):
    """A running kproxy in front of a fake broker that holds the topic ``t``."""

    def __init__(
        self,
        process: subprocess.Popen[str],
        log: Path,
        broker: "_Broker",
        longest_stretch: LongestStretch,
        *,
        opens: bool = True,
        wrong_broker: WrongBroker | None = None,
    ) -> None:
        """``opens``: clients need neither TLS nor a login, so that a witness can write and read.

        ``wrong_broker``: what is between kproxy and the broker, if anything.
        """
        self.wrong_broker = wrong_broker
        super().__init__(process, log, longest_stretch)
        self._broker = broker
        self._opens = opens
        self._count = 0
        self.http = self._listening["http"]
        wait_for(lambda: self.metric("kproxy_ready") == 1)
        if opens:
            self.make_topic()
        self.serves_others()
        self.idle_memory = self.memory

    def honest_connection(self, patience: float) -> HTTPConnection:
        return HTTPConnection(self.http, timeout=patience)

    def connect_http(self, address: str = "127.0.0.1") -> socket.socket:
        """A plain connection, from an address of this host, to the pages for operators."""
        host, _, port = self.http.rpartition(":")
        return socket.create_connection((host, int(port)), PATIENCE, (address, 0))

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 if it is not on the page."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=PATIENCE) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def client(self) -> ClusterClient:
        """A client that means no harm."""
        return ClusterClient(f"127.0.0.1:{self.port}", client_id="witness", timeout=PATIENCE)

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


class BesiegedWebhook(Target):
    """A running ``kproxy webhook``; an honest API server sends the review of one pod."""

    honest_request = ("POST", "/pods", _REVIEW)

    def __init__(
        self, process: subprocess.Popen[str], log: Path, longest_stretch: LongestStretch, trusted: ssl.SSLContext
    ) -> None:
        """``trusted``: what clients verify its certificate by."""
        super().__init__(process, log, longest_stretch)
        self._trusted = trusted
        connection = self.honest_connection(PATIENCE)
        connection.request(*self.honest_request)
        assert connection.getresponse().status == HTTPStatus.OK
        connection.close()
        self.idle_memory = self.memory

    def honest_connection(self, patience: float) -> HTTPConnection:
        return HTTPSConnection("localhost", self.port, timeout=patience, context=self._trusted)

    def connect_tls(self, address: str = "127.0.0.1") -> ssl.SSLSocket:
        """A connection from an address of this host, whose handshake is done."""
        return self._trusted.wrap_socket(self.connect(address), server_hostname="localhost")


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
def besieged(
    directory: Path, *options: str, opens: bool = True, files: int | None = None, wrong: bool = False
) -> Iterator[Besieged]:
    """The two processes, until the block ends; kproxy's log is in ``directory``.

    ``files``: how many files kproxy may have open, if that is limited. ``wrong``: its broker may answer as an attack
    wants it to.
    """
    with ExitStack() as stack:
        broker = _Broker(stack)
        host, _, port = broker.bootstrap.rpartition(":")
        between = stack.enter_context(WrongBroker((host, int(port)))) if wrong else None
        bootstrap = broker.bootstrap if between is None else between.address
        command = ["run", f"--bootstrap-servers={bootstrap}", "--listen=127.0.0.1:0", "--http=127.0.0.1:0"]
        process, log, longest = _watched(stack, directory, [*command, "--log-format=json", *options])
        if files is not None:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
        yield Besieged(process, log, broker, longest, opens=opens, wrong_broker=between)


@contextmanager
def besieged_webhook(directory: Path) -> Iterator[BesiegedWebhook]:
    """``kproxy webhook`` with a certificate of its own, until the block ends; its log is in ``directory``."""
    authority, path = trustme.CA(), directory / "tls.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(path))
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with ExitStack() as stack:
        flags = ["--listen=127.0.0.1:0", f"--certificate={path}", f"--key={path}", "--image=kproxy:0"]
        process, log, longest = _watched(stack, directory, ["webhook", *flags])
        yield BesiegedWebhook(process, log, longest, trusted)


def _watched(
    stack: ExitStack, directory: Path, command: Sequence[str]
) -> tuple[subprocess.Popen[str], Path, LongestStretch]:
    """A command of kproxy's whose loop is watched, until ``stack`` ends; its log, and the longest stretch."""
    log, stretches = directory / "kproxy.log", directory / "longest-stretch"
    longest = LongestStretch(stretches)
    output = stack.enter_context(log.open("w"))
    program = ["-m", "verification.hostile.stretches", str(stretches)]
    return stack.enter_context(_python(*program, *command, to=output)), log, longest


@contextmanager
def _python(*arguments: str, to: int | IO[str] = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    errors = subprocess.DEVNULL if to == subprocess.PIPE else to
    with subprocess.Popen([sys.executable, *arguments], stdout=to, stderr=errors, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
