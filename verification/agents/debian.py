"""Agents as Debian packages them: what each needs in its own configuration."""

import socket
from collections.abc import Sequence
from pathlib import Path

from verification.agents.agent import TOPIC, Agent, AgentFailed, FollowsFile, Process, ReadsInput
from verification.agents.packages import Unpacked, unpack

__all__ = ["Collectd", "Kcat", "Rsyslog", "SyslogNg"]


class _Packaged(Agent):
    """A program of Debian's packages."""

    #: The packages, its own first.
    packages: Sequence[str]

    @classmethod
    def unpacked(cls) -> Unpacked:
        return unpack(cls.packages)


class Rsyslog(_Packaged, FollowsFile):
    """With its defaults it drops what it can't deliver at once: these lines keep it."""

    name = "rsyslog"
    title = "rsyslog `omkafka`"
    needs = (
        '`action.resumeRetryCount="-1"`, `action.resumeInterval`, `resubmitOnFailure="on"`, `keepFailedMessages="on"`: '
        "with its defaults it drops what it can't deliver at once"
    )
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


class SyslogNg(_Packaged, FollowsFile):
    """Its destination ``kafka-c``."""

    name = "syslog-ng"
    title = "syslog-ng `kafka-c`"
    needs = "`flags(flow-control)`"
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


class Collectd(_Packaged):
    """Its plugin ``write_kafka``; each line is a value with a name of its own."""

    name = "collectd"
    title = "collectd `write_kafka`"
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

    def write(self, lines: Sequence[str], process: Process) -> None:
        with socket.socket(socket.AF_UNIX) as sock, sock.makefile("rw") as file:
            sock.connect(str(self._socket))
            for one in lines:
                file.write(f"PUTVAL host/{one}/gauge interval=10 N:1\n")
                file.flush()
                if not file.readline().startswith("0 "):
                    raise AgentFailed(f"collectd refused {one}")


class Kcat(_Packaged, ReadsInput):
    """``kcat -P``. Without ``-E`` it ends when it loses its only connection."""

    name = "kcat"
    title = "kcat `-P`"
    needs = "`-E`: without it, it ends when it loses its only connection"
    packages = ("kcat", "librdkafka1", "libyajl2")

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        return [str(unpacked.one("usr/bin/kcat")), "-P", "-E", "-b", self.bootstrap, "-t", TOPIC]
