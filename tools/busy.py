"""Runs pytest beside a busy neighbour: as many endless loops as the machine has cores, at normal priority.

    python -m tools.busy [--neighbours 4] tests/interop/test_tls.py -k broker

All other arguments are pytest's. The exit status is pytest's, and its summary lists the tests that failed.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from kproxy.testing.kafka import die_with_parent


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[list[int]]:
    """Keep ``count`` processes in an endless loop until the block ends; gives their process ids."""
    loop = [sys.executable, "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(loop, preexec_fn=die_with_parent()) for _ in range(count)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pytest with the other arguments; return its exit status."""
    parser = argparse.ArgumentParser(prog="tools.busy", allow_abbrev=False)
    parser.add_argument("--neighbours", type=int, default=os.cpu_count() or 1, help="how many endless loops")
    ours, others = parser.parse_known_args(arguments)
    with neighbours(ours.neighbours):
        command = [sys.executable, "-m", "pytest", *others]
        return subprocess.run(command, check=False, preexec_fn=die_with_parent()).returncode


if __name__ == "__main__":
    sys.exit(main())
