"""The agents: what each needs in its own configuration, and how lines get into it."""

import os
import re
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kproxy.testing.kafka import die_with_parent
from verification.agents.packages import Unpacked, unpack

__all__ = ["AGENTS", "Agent", "AgentFailed", "line", "number_in"]

TOPIC: Final = "lines"
_NUMBER: Final = re.compile(rb"line-(\d+)")
_START_S: Final = 30.0
_STOP_S: Final = 10.0


class AgentFailed(RuntimeError):
    """An agent did not start, or ended by itself; the message has the end of what it printed."""


def line(number: int) -> str:
    """One of the lines that are written, without its end."""
    return f"line-{number}"


def number_in(value: bytes) -> int:
    """Which line a record holds. ValueError: none."""
    found = _NUMBER.search(value)
    if found is None:
        raise ValueError(f"a record holds no line: {value[:80]!r}")
    return int(found[1])


class Agent(ABC):
    """A program that writes lines to Kafka.

    ``directory``: for its configuration, state and log; exists. ``bootstrap``: the address in its configuration.
    """

    name: str
    #: Debian's packages, its own first.
    packages: Sequence[str]
    #: How many lines a whole trial has, and the share of Produce responses that is lost in it.
    lines = 50_000
    share = 0.2
    #: How many lines are written together.
    chunk = 100

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.log = directory / "agent.log"

    @classmethod
    def unpacked(cls) -> Unpacked:
        """Its program. Unavailable: it is unavailable."""
        return unpack(cls.packages)

    @abstractmethod
    def command(self, unpacked: Unpacked) -> Sequence[str]:
        """Writes its configuration; the command that runs it in the foreground."""

    @abstractmethod
    def write(self, lines: Sequence[str], process: "subprocess.Popen[bytes]") -> None:
        """Hands it lines, each without its end."""

    def ready(self) -> bool:
        """Whether lines may be handed to it."""
        return True

    def finish(self, process: "subprocess.Popen[bytes]") -> None:  # noqa: B027 - most have nothing to do
        """Tells it that it has all lines."""

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Runs it; it is killed at the end. AgentFailed, Unavailable."""
        unpacked = self.unpacked()
        command = self.command(unpacked)
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **unpacked.environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(),
            )
        try:
            deadline = time.monotonic() + _START_S
            while not self.ready():
                self.check(process)
                if time.monotonic() > deadline:
                    raise AgentFailed(f"{self.name} takes no lines after {_START_S:.0f} s:\n{self.tail()}")
                time.sleep(0.05)
            yield process
        finally:
            process.kill()
            process.wait(_STOP_S)
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()

    def check(self, process: "subprocess.Popen[bytes]") -> None:
        """AgentFailed if it has ended."""
        if process.poll() not in (None, 0):
            raise AgentFailed(f"{self.name} ended with {process.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]


class _FollowsFile(Agent):
    """Reads the lines of a file that grows."""

    @property
    def input(self) -> Path:
        """The file."""
        return self.directory / "input.log"

    def write(self, lines: Sequence[str], process: "subprocess.Popen[bytes]") -> None:
        with self.input.open("a") as file:
            file.writelines(f"{one}\n" for one in lines)


class Rsyslog(_FollowsFile):
    """With its defaults it drops what it can't deliver at once: these lines keep it."""

    name = "rsyslog"
    packages = ("rsyslog", "rsyslog-kafka", "librdkafka1", "libestr0", "libfastjson4", "liblognorm5")

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        path = self.directory / "rsyslog.conf"
        path.write_text(f"""
global(workDirectory="{self.directory}" maxMessageSize="64k")
module(load="imfile" mode="inotify")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
input(type="imfile" file="{self.input}" tag="lines")
action(type="omkafka" broker=["{self.bootstrap}"] topic="{TOPIC}" template="line"
       action.resumeRetryCount="-1" action.resumeInterval="1" resubmitOnFailure="on" keepFailedMessages="on"
       failedMsgFile="{self.directory}/failed")
""")
        self.input.touch()
        modules = unpacked.one("usr/lib/*-linux-gnu*/rsyslog")
        program = str(unpacked.one("usr/sbin/rsyslogd"))
        return [program, "-n", "-f", str(path), "-i", str(self.directory / "pid"), "-M", str(modules)]


class SyslogNg(_FollowsFile):
    """Its destination ``kafka-c``."""

    name = "syslog-ng"
    packages = (
        "syslog-ng-core",
        "syslog-ng-mod-rdkafka",
        "librdkafka1",
        "libivykis0",
        "libnet1",
        "libpcre3",
        "libwrap0",
    )

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        path = self.directory / "syslog-ng.conf"
        path.write_text(f"""
@version: {".".join(unpacked.version.split(".")[:2])}
options {{ stats-freq(0); chain-hostnames(no); }};
source lines {{ file("{self.input}" follow-freq(1) flags(no-parse)); }};
destination kafka {{
  kafka-c(bootstrap-servers("{self.bootstrap}") topic("{TOPIC}") message("$MSG") flush-timeout-on-shutdown(1000));
}};
log {{ source(lines); destination(kafka); flags(flow-control); }};
""")
        self.input.touch()
        state = {
            "persist-file": self.directory / "persist",
            "pidfile": self.directory / "pid",
            "control": self.directory / "control",
            "module-path": unpacked.one("usr/lib/syslog-ng/*.*"),
        }
        flags = [f"--{name}={place}" for name, place in state.items()]
        return [str(unpacked.one("usr/sbin/syslog-ng")), "--foreground", f"--cfgfile={path}", "--no-caps", *flags]


class Collectd(Agent):
    """Its plugin ``write_kafka``; each line is a value with a name of its own."""

    name = "collectd"
    packages = ("collectd-core", "librdkafka1", "libltdl7", "libyajl2")
    lines = 10_000
    chunk = 20

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        path = self.directory / "collectd.conf"
        path.write_text(f"""
BaseDir "{self.directory}"
PIDFile "{self.directory}/pid"
PluginDir "{unpacked.one("usr/lib/collectd")}"
TypesDB "{unpacked.one("usr/share/collectd/types.db")}"
LoadPlugin unixsock
LoadPlugin write_kafka
<Plugin unixsock>
  SocketFile "{self._socket}"
</Plugin>
<Plugin write_kafka>
  Property "metadata.broker.list" "{self.bootstrap}"
  <Topic "{TOPIC}">
    Format Command
  </Topic>
</Plugin>
""")
        return [str(unpacked.one("usr/sbin/collectd")), "-f", "-C", str(path)]

    @property
    def _socket(self) -> Path:
        return self.directory / "socket"

    def ready(self) -> bool:
        return self._socket.exists()

    def write(self, lines: Sequence[str], process: "subprocess.Popen[bytes]") -> None:
        with socket.socket(socket.AF_UNIX) as sock, sock.makefile("rw") as file:
            sock.connect(str(self._socket))
            for one in lines:
                file.write(f"PUTVAL host/{one}/gauge interval=10 N:1\n")
                file.flush()
                if not file.readline().startswith("0 "):
                    raise AgentFailed(f"collectd refused {one}")


class Kcat(Agent):
    """``kcat -P``, whose standard input is a pipe. Without ``-E`` it ends when it loses its only connection."""

    name = "kcat"
    packages = ("kcat", "librdkafka1", "libyajl2")

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        return [str(unpacked.one("usr/bin/kcat")), "-P", "-E", "-b", self.bootstrap, "-t", TOPIC]

    def write(self, lines: Sequence[str], process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        process.stdin.write("".join(f"{one}\n" for one in lines).encode())
        process.stdin.flush()

    def finish(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        process.stdin.close()


AGENTS: Final[Mapping[str, type[Agent]]] = {agent.name: agent for agent in (Rsyslog, SyslogNg, Collectd, Kcat)}
