"""kproxy as its users run it: a process of its own."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final, Self

from kproxy.testing.ports import free_ports
from tests.support.patience import PATIENCE_S

_READY_TIMEOUT_S: Final = PATIENCE_S
BROKER_PORTS: Final = 6
#: Longer than shutdown.grace.ms: kproxy waits for open transactions.
_STOP_TIMEOUT_S: Final = PATIENCE_S


class KproxyFailed(AssertionError):
    """kproxy ended, did not become ready, or logged a traceback; the message has the end of its log."""


class KproxyProcess:
    """`kproxy run` in front of a cluster, on loopback ports, as a context manager.

    It has an `instance.id` of its own, which it keeps when it is started again, unless `options` name one.
    """

    def __init__(self, upstream: str, log: Path, *options: str) -> None:
        listen, http, first, *_, last = free_ports(2 + BROKER_PORTS)
        self.bootstrap = f"127.0.0.1:{listen}"
        self.ports = (listen, *range(first, last + 1))
        self.http = f"http://127.0.0.1:{http}"
        self._log = log
        self._seen = 0
        self._command = [sys.executable, "-m", "kproxy", "run", "--bootstrap-servers", upstream]
        self._command += ["--listen", self.bootstrap, "--http", f"127.0.0.1:{http}"]
        self._command += ["--broker-ports", f"{first}-{last}"]
        # several run beside each other: one that shared its id would abort as its former self's what another has open
        self._command += ["--instance-id", f"interop-{listen}", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self._ready():
            self.check()
            if time.monotonic() > deadline:
                self.__exit__()
                raise KproxyFailed(f"kproxy not ready after {_READY_TIMEOUT_S:.0f} s:\n{self._tail()}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise KproxyFailed(f"kproxy did not end on SIGTERM in {_STOP_TIMEOUT_S:.0f} s:\n{self._tail()}") from None

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def check(self) -> None:
        """Raise :class:`KproxyFailed` if kproxy has ended, or has logged a traceback since the last check."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        fresh, self._seen = text[self._seen :], len(text)
        if self._process is None or self._process.poll() is not None:
            raise KproxyFailed(f"kproxy ended:\n{self._tail()}")
        if "Traceback (most recent call last)" in fresh:
            raise KproxyFailed(f"kproxy logged a traceback:\n{fresh[-6000:]}")

    def log(self) -> str:
        """Return all that it has logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def metrics(self) -> str:
        """Return the Prometheus page."""
        with urllib.request.urlopen(f"{self.http}/metrics", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.http}/readyz", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-6000:]
