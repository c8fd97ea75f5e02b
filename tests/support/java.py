"""Java programs as test oracles: jars from Maven, compiled once into the cache, one JVM that answers line by line.

    with JavaLines(Path("Oracle.java"), [jars("org.apache.kafka:kafka-clients:4.3.0")]) as oracle:
        answer = oracle.ask("crc 00ff")

The program reads a line from standard input and prints one line, flushed, for each; a line that begins with ``error ``
makes ``ask`` raise. Several releases of one library fit into one JVM if the program loads each in a class loader of
its own: hand it the directories as arguments.
"""

import re
import select
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kproxy.testing.cache import installed
from kproxy.testing.maven import QUICK_JVM, find_java, find_maven, maven_environment

BUILD_TIMEOUT_S = 600
ANSWER_TIMEOUT_S = 60
# Pinned, so that a cached installation and a new one are the same.
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class JavaError(RuntimeError):
    """The program cannot be built, has ended, or answered with an error."""


def jars(*coordinates: str) -> Path:
    """A directory with the jars of all ``group:artefact:version`` and of what they need at run time."""

    def build(work: Path) -> None:
        dependencies = "".join(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
                *coordinate.split(":")
            )
            for coordinate in coordinates
        )
        (work / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>kproxy</groupId><artifactId>oracle</artifactId><version>1</version><packaging>pom</packaging>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        _run([find_maven(), "-q", "-B", COPY, "-DincludeScope=runtime", f"-DoutputDirectory={work}"], work)

    return installed("java-jars", [COPY, *coordinates], build)


def classes(source: Path, classpath: Sequence[Path]) -> Path:
    """A directory with the compiled classes of one source file; ``classpath`` holds directories of jars."""

    def build(work: Path) -> None:
        javac = Path(find_java()).with_name("javac")
        path = ":".join(f"{directory}/*" for directory in classpath)
        _run(
            [
                str(javac),
                *(f"-J{option}" for option in QUICK_JVM),
                "-nowarn",
                "-proc:none",
                "-d",
                str(work),
                "-cp",
                path,
                str(source.resolve()),
            ],
            work,
        )

    return installed("java-classes", [source.read_text(), *map(str, classpath)], build)


class JavaLines:
    """A running Java program that answers each line with a line. Its main class is named like the source file."""

    def __init__(self, source: Path, classpath: Sequence[Path], arguments: Sequence[str] = ()) -> None:
        path = ":".join([str(classes(source, classpath)), *(f"{directory}/*" for directory in classpath)])
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the program
        self._process = subprocess.Popen(
            [find_java(), *options, "-cp", path, source.stem, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            text=True,
        )

    def ask(self, line: str) -> str:
        """Sends a line and returns the response; JavaError if it is an error, is late, or the program has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise JavaError("the program has no pipes")
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except BrokenPipeError as e:
            raise JavaError(f"the program has ended: {self._tail()}") from e
        if not select.select([stdout], [], [], ANSWER_TIMEOUT_S)[0]:
            raise JavaError(f"no answer in {ANSWER_TIMEOUT_S} s to {line[:200]}")
        answer = stdout.readline()
        if not answer:
            raise JavaError(f"the program has ended: {self._tail()}")
        if answer.startswith("error "):
            raise JavaError(f"{answer.strip()[6:]} (to {line[:200]})")
        return answer.rstrip("\n")

    def close(self) -> None:
        """Ends the program."""
        self._process.kill()
        self._process.communicate()
        self._noise.close()

    def _tail(self) -> str:
        self._noise.seek(0)
        return self._noise.read().decode("utf-8", "replace")[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env=maven_environment(),
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
        raise JavaError(f"{' '.join(command)} failed:\n{output[-3000:]}")
