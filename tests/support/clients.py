"""Released Kafka clients for tests, each installed once from its ordinary registry into the cache directory.

Four tool chains: Maven and javac, pip, Go, npm. Every installation is pinned, lives in a directory named by a hash of
all that went into it, and is made under a lock, so that several test processes may share the cache. What is missing
raises ``ToolUnavailable``: a test fails then, it is never skipped.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kproxy.testing.cache import installed
from kproxy.testing.class_archive import archive_in, sharing, writing
from kproxy.testing.tools import find_tool, run_tool
from tests.support.build_tools import SMALL_JVM, compile_java, fetch_jars

DRIVERS: Final = Path(__file__).resolve().parent.parent / "interop" / "drivers"
_DRIVER_TIMEOUT_S: Final = 300.0  # longer than the steps of a driver wait, each for itself
_GSON: Final = "com.google.code.gson:gson:2.11.0"
# Taken once: pytest changes a variable of its own with each test, while drivers start in other threads.
_ENVIRONMENT: Final = dict(os.environ)


@dataclass(frozen=True)
class Command:
    """How to start a driver: its argument list and what it needs in the environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    archive: Path | None = None
    """The archive of classes that the next run in `run_driver` is to write, as there is none yet."""

    @property
    def whole_environment(self) -> dict[str, str]:
        """Of the process: that of the tests, and what the driver needs."""
        return {**_ENVIRONMENT, **self.environment}


def run_driver(command: Command, job: Mapping[str, Any], timeout_s: float = _DRIVER_TIMEOUT_S) -> list[dict[str, Any]]:
    """Run one job (see the drivers' README) and return one result for each of its steps.

    A driver that ends or is cut off early gives an ``error`` result for every step that it did not reach.
    """
    room = None if command.archive is None else command.archive.parent
    with tempfile.TemporaryFile() as noise, tempfile.TemporaryDirectory(dir=room) as work:
        archive = Path(work) / "classes.jsa"
        process = subprocess.Popen(
            _writing(command, archive),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=noise,
            env=command.whole_environment,
        )
        try:
            output, _ = process.communicate(json.dumps(job).encode(), timeout_s)
            ending = f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            ending = f"killed after {timeout_s:.0f} s"
        if command.archive is not None and process.returncode == 0 and archive.exists():
            archive.rename(command.archive)
        noise.seek(0)
        tail = noise.read().decode("utf-8", "replace")[-3000:]
    lines = output.decode("utf-8", "replace").splitlines()
    results = [json.loads(line.removeprefix("RESULT ")) for line in lines if line.startswith("RESULT ")]
    for result in results:
        if "error" in result:
            result["error"] = f"{result['error']}\n{tail}"
    for step in job["steps"][len(results) :]:
        results.append({"op": step["op"], "error": f"{ending}; standard error ends with:\n{tail}"})
    return results


def _writing(command: Command, archive: Path) -> Sequence[str]:
    """The arguments of a process that writes its archive of classes, if it has none, to a place of its own first."""
    if command.archive is None or command.archive.exists():
        return command.argv
    java, *others = command.argv
    return (java, *writing(archive), *others)


def java_driver(client: str, *sources: str) -> Command:
    """Compile the Java driver against one release (``group:artefact:version``) and return how to start it."""
    files = [path for source in sources for path in sorted((DRIVERS / source).glob("*.java"))]
    if "java08" in sources:
        # KafkaConsumer of 0.8.2 is an empty shell that later sources do not compile against.
        files = [path for path in files if path.name != "NewSteps.java"]
    return _java("Driver", files, [client, _GSON])


def java_program(name: str, *coordinates: str, main: str = "Main") -> Command:
    """Compile the Java sources in the directory ``name``, and return how to start the class ``main``."""
    return _java(main, sorted((DRIVERS / name).glob("*.java")), coordinates)


def _java(main: str, files: Sequence[Path], coordinates: Sequence[str]) -> Command:
    def install(target: Path) -> None:
        fetch_jars(coordinates, target / "libs")
        (target / "classes").mkdir()
        compile_java(files, f"{target}/libs/*", target / "classes")
        # Class data sharing works with jars only.
        with zipfile.ZipFile(target / "driver.jar", "w") as jar:
            for path in sorted((target / "classes").iterdir()):
                jar.write(path, path.name)

    home = installed(
        "java", ["driver.jar", *coordinates, *(path.read_text(encoding="utf-8") for path in files)], install
    )
    archive = archive_in(home, shutil.which("java") or "java")
    return Command(
        ("java", *SMALL_JVM, *sharing(archive), "-cp", f"{home}/driver.jar:{home}/libs/*", main), archive=archive
    )


def python_driver(script: str, *requirements: str) -> Command:
    """Install pinned requirements into a directory of their own and return how to start the driver with them."""

    def install(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
        run_tool([*pip, "--target", str(target / "site"), *requirements], target)

    home = installed("python", [sys.version, *requirements], install)
    return Command((sys.executable, str(DRIVERS / "python" / script)), {"PYTHONPATH": f"{home}/site"})


def go_driver(modfile: str, *tags: str) -> Command:
    """Build the Go driver with the given module file and return how to start it."""
    return go_program(DRIVERS / "go", modfile, *tags)


def go_program(source: Path, modfile: str = "go.mod", *tags: str) -> Command:
    """Build the Go program in a directory with the given module file and return how to start it."""
    name = "program"

    def install(target: Path) -> None:
        go = find_tool("go", "Go 1.21 or later")
        options = ["-modfile", modfile, "-tags", ",".join(tags), "-trimpath"]
        run_tool([go, "build", *options, "-o", str(target / name), "."], source)

    files = [path.read_text(encoding="utf-8") for path in sorted(source.iterdir()) if path.is_file()]
    home = installed("go", [name, modfile, *tags, *files], install)
    return Command((f"{home}/{name}",))


def node_driver() -> Command:
    """Install the Node clients and return how to start the driver with them."""
    source = DRIVERS / "node"
    files = sorted(path for path in source.iterdir() if path.is_file())

    def install(target: Path) -> None:
        find_tool("node", "Node 18 or later")
        npm = find_tool("npm", "npm, which comes with Node")
        for path in files:
            shutil.copy(path, target)
        # Without install scripts and optional packages: nothing is compiled, only plain JavaScript is used.
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--omit=optional"]
        run_tool([npm, "install", *quiet], target)

    home = installed("node", [path.read_text(encoding="utf-8") for path in files], install)
    return Command((find_tool("node", "Node 18 or later"), "--no-deprecation", f"{home}/driver.js"))
