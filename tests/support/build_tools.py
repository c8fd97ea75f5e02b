"""What builds foreign programs for tests: Maven, javac and others, each found and run with its words in the error."""

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kproxy.testing.maven import (
    MINIMUM_JAVA,
    QUICK_JVM,
    KafkaUnavailable,
    copy_jars,
    dependencies,
    find_java,
    maven_environment,
)

#: Of Java programs of tests: small, and soon at work.
SMALL_JVM: Final = ("-Xmx256m", *QUICK_JVM, "-Xshare:auto")
_TIMEOUT_S: Final = 600


class ToolUnavailable(RuntimeError):
    """A program cannot be built here; the message says what to install or what went wrong."""


def find_tool(name: str, advice: str) -> str:
    """The path of a tool; ToolUnavailable with the advice."""
    found = shutil.which(name)
    if found is None:
        raise ToolUnavailable(f"no {name} found: install {advice}")
    return found


def run_tool(command: Sequence[str], directory: Path) -> None:
    """Runs a tool to its end. ToolUnavailable if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=maven_environment(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolUnavailable(f"{command[0]} did not end in {_TIMEOUT_S} s: {' '.join(command)}") from error
    if done.returncode:
        raise ToolUnavailable(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def fetch_jars(coordinates: Sequence[str], directory: Path) -> None:
    """The jars of all ``group:artefact:version`` and of what they need at run time. ToolUnavailable."""
    try:
        copy_jars(" ".join(coordinates), dependencies(*coordinates), directory)
    except KafkaUnavailable as error:
        raise ToolUnavailable(str(error)) from error


def compile_java(sources: Iterable[Path], classpath: str, target: Path) -> None:
    """Writes the classes of Java sources into a directory. ToolUnavailable."""
    try:
        java = find_java()
    except KafkaUnavailable as error:
        raise ToolUnavailable(str(error)) from error
    beside = str(Path(java).resolve().parent)
    if (javac := shutil.which("javac", path=beside)) is None:
        raise ToolUnavailable(f"no javac in {beside}: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)")
    # The Java that runs them may be another one.
    options = [*(f"-J{option}" for option in QUICK_JVM), "--release", str(MINIMUM_JAVA), "-proc:none", "-nowarn"]
    named = [str(source.resolve()) for source in sources]
    run_tool([javac, *options, "-d", str(target), "-cp", classpath, *named], target)
