"""README's quick start, typed as it is printed: only addresses are replaced, by free ones of this machine."""

import json
import re
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kproxy.testing.ports import free_ports

_SECTION: Final = re.compile(r"^## Quick start\n\n((?:    .*\n|\n)+)", re.MULTILINE)
_BROKERS: Final = "broker1:9092,broker2:9092"
_LISTEN: Final = "127.0.0.1:19092"
_HTTP: Final = "127.0.0.1:19644"
_START_SECONDS: Final = 180
_READY_SECONDS: Final = 30
_STOP_SECONDS: Final = 30
_RECORDS: Final = 1000
_CLIENT: Final = """
import sys
from confluent_kafka import Consumer, Producer
setting, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
name, _, address = setting.partition("=")
errors = []
producer = Producer({name: address, "client.id": "rehearsal", "message.timeout.ms": 30000})
for number in range(count):
    producer.produce(topic, str(number), on_delivery=lambda error, _: error and errors.append(error))
left = producer.flush(60)
assert not errors and not left, (errors[:3], left)
consumer = Consumer({name: address, "group.id": "rehearsal", "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
seen = []
while len(seen) < count:
    records = consumer.consume(500, 30)
    assert records, f"{len(seen)} of {count} records came back"
    seen += [int(record.value()) for record in records if not record.error()]
consumer.close()
assert sorted(seen) == list(range(count)), len(seen)
"""


class StepFailed(Exception):
    """A step of the release found what must not be released."""


class QuickStart(NamedTuple):
    """The lines of README's quick start by what is done with them."""

    run: str
    client: str
    commands: tuple[str, ...]


def quick_start_of(readme: str) -> QuickStart:
    """The lines of the quick start; StepFailed for one that is none of the known kinds."""
    section = _SECTION.search(readme)
    lines = [line.partition("#")[0].strip() for line in section[1].splitlines()] if section else []
    run: list[str] = []
    client: list[str] = []
    commands: list[str] = []
    for line in filter(None, lines):
        if line.startswith("kproxy run "):
            run.append(line)
        elif line.startswith(("kproxy ", "curl ")):
            commands.append(line)
        elif line.startswith("bootstrap.servers="):
            client.append(line)
        elif not line.startswith("pip install "):
            raise StepFailed(f"README's quick start has a line that the rehearsal cannot type: {line!r}")
    if len(run) != 1 or len(client) != 1 or _BROKERS not in run[0] or _LISTEN not in client[0]:
        raise StepFailed(f"README's quick start must run kproxy for {_BROKERS} and lead one client to {_LISTEN}")
    return QuickStart(run[0], client[0], tuple(commands))


def quick_start(
    readme: str, programs: Path, work: Path, environment: Mapping[str, str], broker: str, say: Callable[[str], None]
) -> str:
    """Type README's quick start with the programs of one folder; brokers are those of ``kproxy sandbox``."""
    lines = quick_start_of(readme)
    listen, http, *ports = free_ports(12)
    where = {"KPROXY_LISTEN": f"127.0.0.1:{listen}", "KPROXY_HTTP": f"127.0.0.1:{http}"}
    where |= {"KPROXY_BROKER_PORTS": f"{ports[0]}-{ports[-1]}", "PATH": f"{programs}:{environment['PATH']}"}
    used = {**environment, **where}

    def typed(line: str) -> list[str]:
        for printed, free in ((_LISTEN, where["KPROXY_LISTEN"]), (_HTTP, where["KPROXY_HTTP"])):
            line = line.replace(printed, free)
        return shlex.split(line)

    def done(command: list[str]) -> str:
        program = str(programs / command[0]) if (programs / command[0]).exists() else command[0]
        ended = subprocess.run(
            [program, *command[1:]], cwd=work, env=used, check=True, capture_output=True, text=True, timeout=120
        )
        return ended.stdout

    say("    kproxy sandbox ...")
    with _sandbox(programs, work, used, broker) as brokers:
        say(f"    {lines.run} ...")
        command = typed(lines.run.replace(_BROKERS, brokers))
        with _running([str(programs / command[0]), *command[1:]], work, used, "run.log") as process:
            _await_ready(f"http://{where['KPROXY_HTTP']}/readyz", work / "run.log")
            say(f"    a client: {lines.client} ...")
            done([str(programs / "python"), "-I", "-c", _CLIENT, *typed(lines.client), "orders", str(_RECORDS)])
            for line in lines.commands:
                say(f"    {line} ...")
                if not done(typed(line)).strip():
                    raise StepFailed(f"{line} printed nothing")
            process.send_signal(signal.SIGTERM)
            if code := process.wait(_STOP_SECONDS):
                raise StepFailed(f"{lines.run} ended with {code}\n{_tail(work / 'run.log')}")
    return f"{_RECORDS} records produced and read back; {', '.join(line.split(' http')[0] for line in lines.commands)}"


@contextmanager
def _running(
    command: list[str], work: Path, environment: Mapping[str, str], log: str
) -> Iterator[subprocess.Popen[bytes]]:
    with (
        (work / log).open("wb") as output,
        subprocess.Popen(command, cwd=work, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def _sandbox(programs: Path, work: Path, environment: Mapping[str, str], broker: str) -> Iterator[str]:
    """The bootstrap servers of the sandbox's brokers."""
    # The ports after that of --listen are those of the brokers.
    http, listen, *_ = free_ports(110)
    command = [programs / "kproxy", "sandbox", "--json", "--broker", broker]
    command += ["--listen", f"127.0.0.1:{listen}", "--http", f"127.0.0.1:{http}"]
    plain = {name: text for name, text in environment.items() if not name.startswith("KPROXY_")}
    with _running([str(part) for part in command], work, plain, "sandbox.log") as process:
        end = time.monotonic() + _START_SECONDS
        while not (line := _json_line(work / "sandbox.log")):
            if process.poll() is not None or time.monotonic() > end:
                raise StepFailed(f"kproxy sandbox did not start\n{_tail(work / 'sandbox.log')}")
            time.sleep(0.1)
        yield json.loads(line)["broker"]


def _json_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return next((line for line in lines if line.startswith("{") and line.endswith("\n")), "")


def _await_ready(url: str, log: Path) -> None:
    end = time.monotonic() + _READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > end:
                raise StepFailed(f"{url} is not ready after {_READY_SECONDS} s\n{_tail(log)}") from None
            time.sleep(0.1)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
