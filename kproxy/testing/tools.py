"""Programs that tests, demos and benchmarks need: found, run to their end, and their own words in the error."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 900
_SHOWN: Final = 3000


class Unavailable(RuntimeError):
    """A program or a real Kafka is unavailable; the message says what to install or what went wrong."""


def find_tool(name: str, advice: str) -> str:
    """Return the path of a program.

    :param advice: what to install if there is none.
    :raises Unavailable: none found.
    """
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name} found: install {advice}")
    return found


def run_tool(command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a program to its end, for at most a quarter of an hour.

    :raises Unavailable: it fails; the message has the end of what it printed.
    """
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{shown} did not end in {_TIMEOUT_S} s") from error
    if done.returncode:
        raise Unavailable(f"{shown} failed:\n{(done.stdout + done.stderr)[-_SHOWN:]}")
