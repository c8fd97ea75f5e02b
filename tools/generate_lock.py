"""Writes what the image installs, each file with its hash: deploy/*.lock, from pyproject.toml, with uv.

A lock that still fits pyproject.toml is left alone, so that ``make generate`` asks no registry without need;
``--upgrade`` takes the newest of all. ``--check`` only tells whether the locks fit.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from kproxy.distribution import NAME

ROOT = Path(__file__).parent.parent
_PIN = re.compile(r"^([a-zA-Z0-9._-]+)==([^ ;\\]+)")
_HASH = "    --hash=sha256:"
#: The oldest Python that kproxy runs on; the lock holds for all later ones, too.
_PYTHON = "3.11"


class Lock(NamedTuple):
    """One lock: its file, and what of pyproject.toml it is of: a dependency group, or kproxy with some extras."""

    path: Path
    group: str = ""
    extras: tuple[str, ...] = ()


#: An image can't be added to, so it has every extra that a proxy may need; not Spark, and not the demonstration.
LOCKS = (
    Lock(ROOT / "deploy" / "requirements.lock", extras=("oauth", "msk", "otel")),
    Lock(ROOT / "deploy" / "build.lock", group="image"),
)


class _Pin(NamedTuple):
    version: Version
    hashes: int
    direct: bool
    """Whether pyproject.toml asked for it when the lock was made."""


def problems(lock: Path, requirements: list[str]) -> Iterator[str]:
    """What of a lock does not fit the requirements, one line each."""
    pins = _pins(lock.read_text(encoding="utf-8")) if lock.exists() else {}
    wanted = {canonicalize_name(entry.name): entry for entry in map(Requirement, requirements)}
    for name, requirement in wanted.items():
        if name not in pins:
            yield f"{name} is missing"
        elif not requirement.specifier.contains(pins[name].version, prereleases=True):
            yield f"{name} {pins[name].version} is not {requirement.specifier}"
    for name, pin in pins.items():
        if not pin.hashes:
            yield f"{name} has no hash"
        if pin.direct and name not in wanted:
            yield f"{name} is not asked for any more"


def _pins(text: str) -> dict[str, _Pin]:
    blocks = re.split(r"^(?=[a-zA-Z0-9])", text, flags=re.MULTILINE)
    pins = {}
    for block in blocks:
        if match := _PIN.match(block):
            direct = re.search(rf"#(?: +via)? +{NAME} ", block) is not None
            pins[canonicalize_name(match[1])] = _Pin(Version(match[2]), block.count(_HASH), direct)
    return pins


def required(pyproject: Path, lock: Lock) -> list[str]:
    """The requirements that a lock must fit."""
    table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    if lock.group:
        return list(table["dependency-groups"][lock.group])
    project = table["project"]
    extras = (project["optional-dependencies"][extra] for extra in lock.extras)
    return [*project["dependencies"], *chain.from_iterable(extras)]


def _compile(lock: Lock, upgrade: bool) -> None:
    what = ["--group", lock.group] if lock.group else ["pyproject.toml", *(f"--extra={extra}" for extra in lock.extras)]
    options = ["--universal", "--generate-hashes", f"--python-version={_PYTHON}", "--quiet"]
    output = [f"--output-file={lock.path.relative_to(ROOT)}", "--custom-compile-command=make generate"]
    command = ["uv", "pip", "compile", *what, *options, *output, *(["--upgrade"] if upgrade else [])]
    subprocess.run(
        [Path(sys.executable).parent / command[0], *command[1:]], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a lock that does not fit."""
    failed = 0
    for lock in LOCKS:
        found = list(problems(lock.path, required(ROOT / "pyproject.toml", lock)))
        if "--check" in arguments:
            for problem in found:
                print(f"{lock.path.name}: {problem}: run make generate", file=sys.stderr)
            failed |= bool(found)
        elif found or "--upgrade" in arguments:
            _compile(lock, "--upgrade" in arguments)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
