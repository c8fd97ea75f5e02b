"""A kproxy that can be killed, frozen, started again, and looked at from outside."""

import http.client
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import trio

from kproxy.testing.kafka import die_with_parent
from kproxy.testing.ports import free_ports

BROKER_PORTS: Final = 4
_READY_TIMEOUT_S: Final = 60.0
RETRY_MEMORY: Final = "kproxy_retry_memory_bytes"
_SAMPLE: Final = re.compile(r"^(kproxy_\w+?)(?:_total)?(?:\{[^}]*\})? ([-+0-9.e]+)$", re.MULTILINE)
SHORT_TIMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "upstream-request-timeout-ms": "8000",
        "upstream-connect-timeout-ms": "3000",
        "metadata-max-age-ms": "5000",
        "clean-close-window-ms": "120000",
        "clients-new-timestamps": "*.sarama*",
    }
)
"""Shorter times than the defaults, so that a run of minutes sees time-outs.

Except for the last one: relays end connections in good order after responses that the client never received, so a FIN
proves nothing here, and producers without timestamps retry for a minute.
"""


class KproxyFailed(RuntimeError):
    """kproxy ended by itself or did not become ready; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a process holds: resident bytes and open file descriptors."""

    resident: int
    descriptors: int


class KproxyProcess:
    """``kproxy run`` as a process of its own, always on the same ports and with the same instance.id.

    :param more: options of ``kproxy run`` beside those that make it what it is.
    :param advertised: the relays' ports, one for bootstrap and then one for each port of ``broker_ports``; any free
        ones if not given.
    :param host: the address at which it listens for clients.
    :param defaults: options that ``more`` overrides.
    :param relayed: whether clients reach it through relays; otherwise ``advertised`` is its own ports.
    :param program: the arguments for this Python that make it a kproxy.
    """

    def __init__(
        self,
        name: str,
        upstream: str,
        directory: Path,
        more: Mapping[str, str] | None = None,
        advertised: Sequence[int] | None = None,
        *,
        relayed: bool = True,
        host: str = "127.0.0.1",
        defaults: Mapping[str, str] = SHORT_TIMES,
        program: Sequence[str] = ("-m", "kproxy"),
    ) -> None:
        self.name = name
        self.listen, self.http = free_ports(2)
        self.broker_ports = free_ports(BROKER_PORTS)
        self.advertised = advertised or (free_ports(1 + BROKER_PORTS) if relayed else self.targets)
        self.log = directory / f"{name}.log"
        self.starts = 0
        self.at_start: Footprint | None = None
        """What the process that runs now held when it had become ready."""
        self.most_for_retries = 0.0
        """The most bytes that it had for retries, by the pages that were read (``metrics``) since its start."""
        options = {
            "log-format": "json",
            **defaults,
            "bootstrap-servers": upstream,
            "instance-id": name,
            "listen": f"{host}:{self.listen}",
            "http": f"127.0.0.1:{self.http}",
            "broker-ports": _text(self.broker_ports),
            "advertised-broker-ports": _text(self.advertised[1:]),
            **(more or {}),
        }
        flags = [word for option, value in options.items() for word in (f"--{option}", value)]
        self._command = [sys.executable, *program, "run", *flags]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def targets(self) -> Sequence[int]:
        """Where the relay on each port of ``advertised`` connects to."""
        return (self.listen, *self.broker_ports)

    async def start(self) -> None:
        """Start and wait until it is ready, or until the next fault takes it before it is.

        :raises KproxyFailed: it does not become ready in 60 s.
        """
        await self._await_ready(self._spawn())

    async def hand_over(self) -> None:
        """Start another process that takes over from the one that runs, which needs `handover-socket`.

        :raises KproxyFailed: the one does not end, or the other does not become ready, in 60 s each.
        """
        former, process = self._process, self._spawn("--replace")
        assert former is not None
        with trio.move_on_after(_READY_TIMEOUT_S):
            while former.poll() is None:  # noqa: ASYNC110 - nothing reports the end of a process
                await trio.sleep(0.1)
        if former.poll() != 0:
            former.kill()
            raise KproxyFailed(f"{self.name} did not hand over: it ended with {former.wait()}:\n{self.log_tail()}")
        await self._await_ready(process)

    async def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        self.starts += 1
        with trio.move_on_after(_READY_TIMEOUT_S):
            while True:
                ready = await trio.to_thread.run_sync(self._is_ready)
                if self._process is not process:
                    return
                if ready:
                    self.at_start = self.footprint()
                    return
                if process.poll() is not None:
                    raise KproxyFailed(f"{self.name} ended with {process.returncode}:\n{self.log_tail()}")
                await trio.sleep(0.1)
        raise KproxyFailed(f"{self.name} not ready after {_READY_TIMEOUT_S:.0f} s:\n{self.log_tail()}")

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, timeout_s: float) -> None:
        """End it in good order, as SIGTERM does.

        :raises subprocess.TimeoutExpired: it takes longer than ``timeout_s``.
        """
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout_s)
            self._process = None

    def cpu_seconds(self) -> float:
        """The processor time of the process that runs now.

        :raises OSError: it does not run.
        """
        fields = (self._home / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pause(self) -> None:
        """Freeze it: its connections stay open and nothing answers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    def footprint(self) -> Footprint:
        """What it holds now.

        :raises OSError: it does not run.
        """
        pages = int((self._home / "statm").read_text().split()[1])
        return Footprint(pages * 4096, sum(1 for _ in (self._home / "fd").iterdir()))

    @property
    def _home(self) -> Path:
        return Path("/proc") / str(self._process.pid if self._process else -1)

    def metrics(self) -> dict[str, float]:
        """Read the metrics page: sums over all labels, by name without ``_total``; empty if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=1) as answer:
                page = answer.read().decode()
        except (OSError, http.client.HTTPException):  # the latter if it is killed while it answers
            return {}
        found: dict[str, float] = {}
        for name, value in _SAMPLE.findall(page):
            found[name] = found.get(name, 0.0) + float(value)
        self.most_for_retries = max(self.most_for_retries, found.get(RETRY_MEMORY, 0.0))
        return found

    def log_tail(self, characters: int = 4000) -> str:
        """Return the end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-characters:]

    def _spawn(self, *more: str) -> subprocess.Popen[bytes]:
        self.most_for_retries = 0.0
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._command, *more],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(),
            )
        return self._process

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def log_problems(text: str) -> list[str]:
    """Return the lines of a kproxy log that report an unhandled exception."""
    marks = ("Traceback (most recent call last)", '"exception"', '"level": "critical"', "Exception ignored")
    return [line for line in text.splitlines() if any(mark in line for mark in marks)]


def _text(ports: Sequence[int]) -> str:
    return f"{ports[0]}-{ports[-1]}"
