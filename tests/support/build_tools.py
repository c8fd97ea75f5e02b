"""What builds Java programs for tests."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kproxy.testing.maven import MINIMUM_JAVA, QUICK_JVM, copy_jars, dependencies, find_java
from kproxy.testing.tools import Unavailable, run_tool

#: Of Java programs of tests: small, and soon at work.
SMALL_JVM: Final = ("-Xmx256m", *QUICK_JVM, "-Xshare:auto")


def fetch_jars(coordinates: Sequence[str], directory: Path) -> None:
    """The jars of all ``group:artefact:version`` and of what they need at run time. Unavailable."""
    copy_jars(" ".join(coordinates), dependencies(*coordinates), directory)


def compile_java(sources: Iterable[Path], classpath: str, target: Path) -> None:
    """Writes the classes of Java sources into a directory. Unavailable."""
    beside = str(Path(find_java()).resolve().parent)
    if (javac := shutil.which("javac", path=beside)) is None:
        raise Unavailable(f"no javac in {beside}: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)")
    # The Java that runs them may be another one.
    options = [*(f"-J{option}" for option in QUICK_JVM), "--release", str(MINIMUM_JAVA), "-proc:none", "-nowarn"]
    named = [str(source.resolve()) for source in sources]
    run_tool([javac, *options, "-d", str(target), "-cp", classpath, *named], target)
