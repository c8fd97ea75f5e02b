"""How the programs in ``drivers`` start; what they need is installed once into the cache."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kproxy.testing.cache import installed
from kproxy.testing.maven import QUICK_JVM, dependencies, find_java, maven_jars
from kproxy.testing.tools import find_tool, run_tool

DRIVERS: Final = Path(__file__).parent / "drivers"


@dataclass(frozen=True, slots=True)
class Command:
    """The arguments of a process and its whole environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


def command_of(driver: str, requirements: Sequence[str], *, package: str = "verification.chaos.drivers") -> Command:
    """Install what a driver needs, and return how to start it.

    :param driver: a Java source file, a directory with a Go module, or a Python module.
    :param package: where the Python module is.
    :param requirements: of Java ``group:artefact:version``, of Python those of pip.
    :raises Unavailable: a tool is missing or does not install it; the message says why.
    """
    if driver.endswith(".java"):
        return Command(_java(DRIVERS / driver, requirements), os.environ)
    if (DRIVERS / driver).is_dir():
        return Command(_go(DRIVERS / driver), os.environ)
    site = ""
    if requirements:
        site = str(installed("chaos", [sys.version, *requirements], lambda target: _pip(target, requirements)))
    environment = {**os.environ, "PYTHONPATH": site}
    return Command([sys.executable, "-m", f"{package}.{driver}"], environment)


def _java(source: Path, coordinates: Sequence[str]) -> Sequence[str]:
    jars = maven_jars(f"chaos-{source.stem}", ", ".join(coordinates), dependencies(*coordinates))
    return [find_java(), "-Xmx128m", *QUICK_JVM, "-cp", f"{jars}/*", str(source)]


def _go(source: Path) -> Sequence[str]:
    go = find_tool("go", "Go 1.21 or later")
    files = [path.read_text(encoding="utf-8") for path in sorted(source.iterdir())]
    home = installed(
        "chaos-go", files, lambda target: run_tool([go, "build", "-o", str(target / "driver"), "."], source)
    )
    return [str(home / "driver")]


def _pip(target: Path, requirements: Sequence[str]) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    run_tool([*pip, "--target", str(target), *requirements], target)
