"""How the programs in ``drivers`` start; what they need is installed once into the cache."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kproxy.testing.cache import installed
from kproxy.testing.maven import QUICK_JVM, KafkaUnavailable, dependencies, find_java, maven_jars

DRIVERS: Final = Path(__file__).parent / "drivers"
_INSTALL_TIMEOUT_S: Final = 600


class ClientFailed(RuntimeError):
    """A released client cannot be installed, or ended before it was stopped."""


@dataclass(frozen=True, slots=True)
class Command:
    """The arguments of a process and its whole environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


def command_of(driver: str, requirements: Sequence[str]) -> Command:
    """Install what a driver needs, and return how to start it.

    :param driver: a Java source file, a directory with a Go module, or a Python module.
    :param requirements: of Java ``group:artefact:version``, of Python those of pip.
    :raises ClientFailed: a tool is missing or does not install it; the message says why.
    """
    if driver.endswith(".java"):
        return Command(_java(DRIVERS / driver, requirements), os.environ)
    if (DRIVERS / driver).is_dir():
        return Command(_go(DRIVERS / driver), os.environ)
    site = ""
    if requirements:
        site = str(installed("chaos", [sys.version, *requirements], lambda target: _pip(target, requirements)))
    environment = {**os.environ, "PYTHONPATH": site}
    return Command([sys.executable, "-m", f"verification.chaos.drivers.{driver}"], environment)


def _java(source: Path, coordinates: Sequence[str]) -> Sequence[str]:
    try:
        jars = maven_jars(f"chaos-{source.stem}", ", ".join(coordinates), dependencies(*coordinates))
        java = find_java()
    except KafkaUnavailable as error:
        raise ClientFailed(str(error)) from error
    return [java, "-Xmx128m", *QUICK_JVM, "-cp", f"{jars}/*", str(source)]


def _go(source: Path) -> Sequence[str]:
    go = shutil.which("go")
    if go is None:
        raise ClientFailed("no go found: install Go 1.21 or later")
    files = [path.read_text(encoding="utf-8") for path in sorted(source.iterdir())]
    home = installed("chaos-go", files, lambda target: _run([go, "build", "-o", str(target / "driver"), "."], source))
    return [str(home / "driver")]


def _pip(target: Path, requirements: Sequence[str]) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    _run([*pip, "--target", str(target), *requirements], target)


def _run(command: Sequence[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClientFailed(f"{' '.join(command)} took longer than {_INSTALL_TIMEOUT_S} s") from error
    if done.returncode:
        raise ClientFailed(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
