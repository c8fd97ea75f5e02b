"""franz-go's fake cluster, kfake, as a process of its own."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.clients import Command, go_program


def install_kfake() -> Command:
    """Build it, if that has not been done, and return how to start it."""
    return go_program(Path(__file__).parent / "kfake")


@contextmanager
def kfake(brokers: int = 1, config: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serve a cluster until the block ends: gives its addresses. It ends with its parent, too."""
    command = install_kfake()
    settings = (f"{key}={value}" for key, value in (config or {}).items())
    argv = [*command.argv, str(brokers), *settings]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
