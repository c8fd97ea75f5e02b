"""Runs what an image would run, as its engine would: its user, its environment, a root that nobody can write to.

There is no shell in it: dash and bash are covered, so that a program that needs one fails.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from tools.image_build import Image

_SHELLS: Final = ("usr/bin/dash", "usr/bin/bash")
_EXIT_SECONDS: Final = 30


def command_in(image: Image, arguments: Sequence[str]) -> list[str]:
    """The command line on this host for ``arguments`` inside; root only."""
    root = shlex.quote(str(image.root))
    steps = [
        f"mount --bind {root} {root}",
        *(f"mount --bind /dev/null {root}/{shell}" for shell in _SHELLS),
        f"mount --bind -o ro /proc {root}/proc",
        f"mount -o remount,bind,ro {root}",
        f'exec chroot --userspec={image.settings["User"]} --groups= {root} "$@"',
    ]
    return ["unshare", "--mount", "--propagation=private", "sh", "-euc", "\n".join(steps), "sh", *arguments]


def run_in(image: Image, arguments: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    """What it prints; subprocess.CalledProcessError if it fails. ``more`` is environment beside the image's."""
    command = command_in(image, arguments)
    environment = _environment(image, more or {})
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    return done.stdout.strip()


@contextmanager
def started_in(image: Image, arguments: Sequence[str], more: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process inside, killed at the end of the block if it has not ended by itself."""
    with subprocess.Popen(command_in(image, arguments), env=_environment(image, more)) as process:
        try:
            yield process
        finally:
            process.kill()


def _environment(image: Image, more: Mapping[str, str]) -> dict[str, str]:
    own = dict(entry.split("=", 1) for entry in image.settings["Env"])
    # unshare and chroot are found by the host's own path, which the image's holds, too.
    return {"PATH": os.defpath} | own | dict(more)


def ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, soon; subprocess.TimeoutExpired if it keeps running."""
    return process.wait(_EXIT_SECONDS)
