"""kproxy as demo and sandbox run it: a child process on loopback ports, stopped with them."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from kproxy.demo.failure import DemoFailed
from kproxy.testing.ports import free_ports

_READY_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 10.0
_SHOWN_BYTES: Final = 2000
#: The beginning of a line that names an error, and is no line of the log.
_ERROR: Final = "kproxy: "


@dataclass(frozen=True)
class Sidecar:
    """A running kproxy: `host:port` for Kafka clients, and for its HTTP pages."""

    address: str
    http: str


@contextlib.contextmanager
def open_sidecar(bootstrap: str) -> Iterator[Sidecar]:
    """Run kproxy on free ports in front of the brokers at `bootstrap` while the block lasts; enter it when it is ready.

    Raises:
        DemoFailed: kproxy ended, or was not ready within 20 s; the message ends with what it printed.
    """
    listen, http, broker = free_ports(3)
    sidecar = Sidecar(f"127.0.0.1:{listen}", f"127.0.0.1:{http}")
    with open_kproxy(sidecar, "--bootstrap-servers", bootstrap, "--broker-ports", f"{broker}-{broker}"):
        yield sidecar


@contextlib.contextmanager
def open_kproxy(sidecar: Sidecar, *options: str) -> Iterator[None]:
    """Run kproxy at the addresses of `sidecar` with these options while the block lasts; enter it when it is ready.

    Raises:
        DemoFailed: as `open_sidecar`.
    """
    _refuse_taken(sidecar.http)
    command = [sys.executable, "-m", "kproxy", "run", "--listen", sidecar.address, "--http", sidecar.http, *options]
    with tempfile.TemporaryFile() as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            _await_ready(process, sidecar, output)
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _await_ready(process: "subprocess.Popen[bytes]", sidecar: Sidecar, output: IO[bytes]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not _is_ready(sidecar):
        if process.poll() is not None:
            raise DemoFailed(_last_words(process.returncode, _tail(output)))
        if time.monotonic() > deadline:
            raise DemoFailed(f"kproxy was not ready after {_READY_SECONDS:.0f} s: {_tail(output)}")
        time.sleep(0.05)


def _refuse_taken(http: str) -> None:
    """DemoFailed if a process listens there: its readiness would be taken for that of this kproxy."""
    host, _, port = http.rpartition(":")
    if not port.isdecimal():
        return  # kproxy says what is wrong with it
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=1),
    ):
        raise DemoFailed(f"another process listens at {http}: choose another address for --http, or stop that process")


def _last_words(status: int, printed: str) -> str:
    """The errors that kproxy printed before it ended, without its log; all that it printed if there are none."""
    errors = [line.removeprefix(_ERROR) for line in printed.splitlines() if line.startswith(_ERROR)]
    return f"kproxy did not start: {'; '.join(errors)}" if errors else f"kproxy ended with status {status}: {printed}"


def _is_ready(sidecar: Sidecar) -> bool:
    try:
        with urllib.request.urlopen(f"http://{sidecar.http}/readyz", timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _tail(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace")[-_SHOWN_BYTES:].strip()
