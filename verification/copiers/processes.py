"""The processes of a run: kproxies that can be killed and come back, Kafka's tools, and what they print."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Self

from kproxy.testing.kafka import die_with_parent
from kproxy.testing.maven import find_java, kafka_jars
from kproxy.testing.ports import free_ports

_BROKER_PORTS: Final = 6
_READY_SECONDS: Final = 60.0
_JVM: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class ToolFailed(RuntimeError):
    """A process did not do what it is there for; the message has the end of its log."""


class _Process:
    """A process that is started again under the same name; its output follows that of the former one."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = command
        self.log = log
        self._output: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Starts it, or starts it again."""
        self.close()
        self._output = self.log.open("ab")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            preexec_fn=die_with_parent(),
        )

    def kill(self) -> None:
        """Ends it at once (``kill -9``)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Ends it and closes its log."""
        self.kill()
        if self._output is not None:
            self._output.close()
            self._output = None

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Kproxy(_Process):
    """``kproxy run`` that by default decides all transactions; always on the same ports, with the same instance.id."""

    def __init__(self, name: str, upstream: str, directory: Path, *options: str, home: str = "kproxy") -> None:
        """``options`` are flags of ``kproxy run``, beside those that make it what it is."""
        listen, http = free_ports(2)
        ports = free_ports(_BROKER_PORTS)
        command = [sys.executable, "-m", "kproxy", "run", "--bootstrap-servers", upstream, "--instance-id", name]
        command += ["--listen", f"127.0.0.1:{listen}", "--http", f"127.0.0.1:{http}", "--log-format", "json"]
        command += ["--broker-ports", f"{ports[0]}-{ports[-1]}", "--transactions-home", home, *options]
        super().__init__(name, command, directory / f"{name}.log")
        self.bootstrap = f"127.0.0.1:{listen}"
        self._ready_page = f"http://127.0.0.1:{http}/readyz"

    def wait_ready(self) -> None:
        """Until it serves clients; ToolFailed if it ends, or takes longer than a minute."""
        deadline = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            if self.exit_code is not None or time.monotonic() > deadline:
                raise ToolFailed(f"{self.name} is not ready:\n{self.tail()}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._ready_page, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def bugs(self) -> list[str]:
        """The log lines that say something went wrong in kproxy itself."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if "Traceback" in line or "bug of kproxy" in line]


class Tool(_Process):
    """A class of Kafka's tools, which prints JSON, a line for each thing that it has done."""

    def __init__(self, name: str, version: str, arguments: Sequence[str], directory: Path) -> None:
        """``arguments``: the class in ``org.apache.kafka.tools`` and its arguments."""
        tool, *rest = arguments
        command = [find_java(), *_JVM, "-cp", f"{kafka_jars(version)}/*", f"org.apache.kafka.tools.{tool}", *rest]
        super().__init__(name, command, directory / f"{name}.log")
        self._read = 0

    def news(self) -> list[dict[str, object]]:
        """What it has printed since this was asked last."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        lines = whole.decode(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]
