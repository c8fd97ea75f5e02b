"""Debian's packages of the agents, unpacked side by side: some of them can't be installed together.

Nothing is installed, started or configured on the machine. Where apt has no lists yet they are fetched, which needs
root.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kproxy.testing.cache import installed
from kproxy.testing.tools import Unavailable, find_tool, run_tool

__all__ = ["Unpacked", "unpack"]

#: Where libraries and modules of these packages are, below the folder that they are unpacked in.
_LIBRARIES: Final = ("usr/lib/*-linux-gnu*", "lib/*-linux-gnu*", "usr/lib/syslog-ng")


class Unpacked(NamedTuple):
    """Programs in a folder of their own."""

    root: Path
    version: str

    @property
    def environment(self) -> dict[str, str]:
        """What the programs have to be told of where their libraries are."""
        places = [str(path) for pattern in _LIBRARIES for path in sorted(self.root.glob(pattern)) if path.is_dir()]
        return {"LD_LIBRARY_PATH": ":".join(places)} if places else {}

    def one(self, pattern: str) -> Path:
        """The one path that matches. Unavailable: there is none."""
        for path in sorted(self.root.glob(pattern)):
            return path
        raise Unavailable(f"the packages hold no {pattern}")


def unpack(packages: Sequence[str]) -> Unpacked:
    """Unpacks packages, the agent's own first, unless that has been done before. Unavailable: they can't be fetched."""
    find_tool("apt-get", "Debian's apt: the agents are Debian's packages")
    if _candidate(packages[0]) is None and os.geteuid() == 0:
        run_tool(["apt-get", "update", "-qq"], Path.cwd())
    found: list[tuple[str, str]] = []
    for name in packages:
        version = _candidate(name)
        if version is None:
            raise Unavailable(f"Debian has no package {name} here (as root: apt-get update)")
        found.append((name, version))

    def fill(directory: Path) -> None:
        archives = directory / "archives"
        archives.mkdir()
        run_tool(["apt-get", "download", "-q", *(f"{name}={version}" for name, version in found)], archives)
        for archive in sorted(archives.glob("*.deb")):
            run_tool(["dpkg-deb", "-x", str(archive), str(directory)], directory)
        shutil.rmtree(archives)

    root = installed("agent", [f"{name}={version}" for name, version in found], fill)
    return Unpacked(root, found[0][1])


def _candidate(name: str) -> str | None:
    """The version that would be installed."""
    done = subprocess.run(["apt-cache", "policy", name], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        what, _, version = line.strip().partition(": ")
        if what == "Candidate" and version != "(none)":
            return version
    return None
