"""Programs that run until they are killed: frameworks on Java around Kafka's clients."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kproxy.testing.kafka import die_with_parent

INTEROP_ALL = bool(os.environ.get("INTEROP_ALL"))
"""Whether releases and homes are tested, too, for which CI has no time."""


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, until the block ends: then it is killed. What it prints is added to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=die_with_parent()
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
