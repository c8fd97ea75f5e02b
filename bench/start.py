"""What the start of kproxy costs, and that of a command which only prints."""

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from bench.processes import free_port, running
from bench.report import Figure
from bench.targets import FORGETFUL, kproxy_command, leader, open_sink

START_SECONDS = 0.5
_ROUNDS = 5


def start(rounds: int = _ROUNDS) -> list[Figure]:
    """CPU from exec until kproxy listens, of its first client after that, and of ``kproxy --help``."""
    with _byte_code(), open_sink() as broker_port:
        _started(broker_port)  # compiles
        starts, clients = zip(*(_started(broker_port) for _ in range(rounds)), strict=True)
        helps = [_printed("--help") for _ in range(rounds)]
    listening = statistics.median(starts)
    return [
        Figure(
            "start, until it listens: CPU",
            "s",
            None,
            None,
            listening,
            f"<= {START_SECONDS}",
            listening <= START_SECONDS,
        ),
        Figure("start, the first client: CPU", "s", None, None, statistics.median(clients)),
        Figure("kproxy --help: CPU", "s", None, None, statistics.median(helps)),
    ]


@contextlib.contextmanager
def _byte_code() -> Iterator[None]:
    """Programs that begin within the block keep their byte code, as pip and the image install it.

    Where PYTHONDONTWRITEBYTECODE is set, a start would compile all modules each time, which takes longer than the rest.
    """
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _started(broker_port: int) -> tuple[float, float]:
    """CPU seconds until a new kproxy listens, with its HTTP pages, and until it has answered its first client."""
    port, leader_port = free_port(), free_port()
    command = [*kproxy_command(port, leader_port, broker_port), *FORGETFUL, "--http", "127.0.0.1:0"]
    with running("kproxy", port, *command) as program:
        listening = program.cpu_seconds()
        leader(("127.0.0.1", port))
        return listening, program.cpu_seconds() - listening


def _printed(*arguments: str) -> float:
    """CPU seconds of a command that ends by itself."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "kproxy", *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
