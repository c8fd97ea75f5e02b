"""Java programs as test oracles: jars from Maven, compiled once into the cache, one JVM that answers line by line.

    with JavaLines(Path("Oracle.java"), [jars("org.apache.kafka:kafka-clients:4.4.0")]) as oracle:
        answer = oracle.ask("crc 00ff")

The program reads a line from standard input and prints one line, flushed, for each; a line that begins with ``error ``
makes ``ask`` raise. Several releases of one library fit into one JVM if the program loads each in a class loader of
its own: hand it the directories as arguments.
"""

import select
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from kproxy.testing.cache import installed
from kproxy.testing.maven import find_java
from tests.support.build_tools import SMALL_JVM, compile_java, fetch_jars

ANSWER_TIMEOUT_S = 60


class JavaError(RuntimeError):
    """The program has ended, or answered with an error."""


def jars(*coordinates: str) -> Path:
    """A directory with the jars of all ``group:artefact:version`` and of what they need at run time."""

    return installed("java-jars", coordinates, partial(fetch_jars, coordinates))


def classes(source: Path, classpath: Sequence[Path]) -> Path:
    """A directory with the compiled classes of one source file; ``classpath`` holds directories of jars."""

    path = ":".join(f"{directory}/*" for directory in classpath)
    build = partial(compile_java, [source], path)
    return installed("java-classes", [source.read_text(), *map(str, classpath)], build)


class JavaLines:
    """A running Java program that answers each line with a line. Its main class is named like the source file."""

    def __init__(self, source: Path, classpath: Sequence[Path], arguments: Sequence[str] = ()) -> None:
        path = ":".join([str(classes(source, classpath)), *(f"{directory}/*" for directory in classpath)])
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the program
        self._process = subprocess.Popen(
            [find_java(), *SMALL_JVM, "-cp", path, source.stem, *arguments],
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
