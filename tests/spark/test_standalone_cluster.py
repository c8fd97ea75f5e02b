"""The recipe of docs/spark-clusters.md: a standalone cluster of two workers, whose Python knows nothing of kproxy.

The package travels as an archive, and tasks reach the control API by HTTPS with a token.
"""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kproxy
from kproxy.distribution import NAME
from kproxy.testing.class_archive import sharing
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka, die_with_parent
from kproxy.testing.maven import QUICK_JVM
from kproxy.testing.ports import free_ports
from kproxy.testing.spark_home import installed_spark, spark_archive, spark_environment
from tests.net.certificates import Authority
from verification.copiers.processes import Kproxy

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_RECORDS: Final = 1000
_SECONDS: Final = 900
_HOST: Final = "127.0.0.1"
#: The master's REST server would have a port that other programs may have.
_NO_REST: Final = "-Dspark.master.rest.enabled=false"
_SPARK: Final = installed_spark()
#: In the wheels, and not needed by a job: the archive is copied to each worker.
_LEFT_OUT: Final = {"__pycache__", "include", "tests"}
_SETTINGS: Final = {
    "spark.executorEnv.PYTHONPATH": "kproxy",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "600m",
    "spark.driver.memory": "1g",
    "spark.driver.host": _HOST,
    "spark.driver.bindAddress": _HOST,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    # No task starts before both executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_SECONDS}s",
}


def test_a_job_on_two_workers_with_the_package_as_an_archive(kafka: RealKafka, tmp_path: Path) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        for topic in ("standalone-first", "standalone-second"):
            client.create_topic(topic, 2)
    package = _package(tmp_path)
    (port,) = free_ports(1)
    options, control = _control_api(tmp_path, port)
    with Kproxy("standalone", kafka.bootstrap, tmp_path, *options) as proxy, _cluster(tmp_path) as master:
        proxy.wait_ready()
        reads = {"kafka.bootstrap.servers": proxy.bootstrap}
        job = {
            "reads": reads,
            "writes": {**reads, **control},
            "first": "standalone-first",
            "second": "standalone-second",
            "records": _RECORDS,
            "checkpoint": str(tmp_path / "checkpoint"),
        }
        flags = [word for name, value in _SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        command = [str(_SPARK / "bin" / "spark-submit"), "--master", master, "--archives", f"{package}.tar#kproxy"]
        command += [*flags, str(Path(__file__).with_name("standalone_job.py")), json.dumps(job)]
        environment = _environment(tmp_path) | {"PYTHONPATH": str(package)}
        done = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        # spark-submit prints the errors of a job in Python to its output
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:] + _logs(tmp_path) + proxy.tail()
    found = json.loads(done.stdout.splitlines()[-1])
    where = found.pop("python")
    assert found == {"records": _RECORDS, "different": _RECORDS, "executors": 2}
    assert str(tmp_path / "worker-") in where, where
    assert "TOKEN" not in done.stderr + _logs(tmp_path)


def _control_api(directory: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """Flags of kproxy, and options of the sink."""
    tls = Authority(directory).issue(_HOST)
    token = directory / "token"
    token.write_text("TOKEN-of-thirty-two-characters-xy")
    token.chmod(0o600)
    options = ["--control-http", f"{_HOST}:{port}", "--control-token-file", str(token)]
    options += ["--control-ssl-certificate-location", str(tls.certificate)]
    options += ["--control-ssl-key-location", str(tls.key)]
    options += ["--control-socket", str(directory / "control.sock")]
    return options, {
        "kproxy.control.url": f"https://{_HOST}:{port}",
        "kproxy.control.token.file": str(token),
        "kproxy.control.ssl.ca.location": str(tls.ca),
    }


@contextmanager
def _cluster(directory: Path) -> Iterator[str]:
    """The URL of the master of two workers of one core each."""
    port, *pages = free_ports(4)
    master = f"spark://{_HOST}:{port}"
    with ExitStack() as ends:
        of_master = ["--host", _HOST, "--port", str(port), "--webui-port", str(pages[0])]
        _start(ends, directory, "master", "org.apache.spark.deploy.master.Master", *of_master)
        for number in (1, 2):
            sizes = ["--host", _HOST, "--cores", "1", "--memory", "1g", "--webui-port", str(pages[number])]
            work = ["--work-dir", str(directory / f"worker-{number}")]
            _start(ends, directory, f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *sizes, *work, master)
        _wait(directory, "master", "New state: ALIVE")
        yield master


def _start(ends: ExitStack, directory: Path, name: str, *command: str) -> None:
    log = ends.enter_context((directory / f"{name}.log").open("wb"))
    process = subprocess.Popen(
        [str(_SPARK / "bin" / "spark-class"), *command],
        env=_environment(directory),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=die_with_parent(),
    )
    ends.callback(process.wait)
    ends.callback(process.terminate)


def _wait(directory: Path, name: str, line: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while line not in (directory / f"{name}.log").read_text(encoding="utf-8", errors="replace"):
        assert time.monotonic() < deadline, _logs(directory)
        time.sleep(0.2)


def _logs(directory: Path) -> str:
    """The ends of the logs of master, workers and executors."""
    files = [*directory.glob("*.log"), *directory.glob("worker-*/*/*/stderr")]
    return "".join(f"\n-- {file}\n{file.read_text(encoding='utf-8', errors='replace')[-2000:]}" for file in files)


def _environment(directory: Path) -> dict[str, str]:
    """Spark as it is installed, and a Python that has none of this environment's packages."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    python = getattr(sys, "_base_executable", sys.executable)
    return {name: value for name, value in os.environ.items() if name not in left_out} | {
        **spark_environment(_SPARK),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_SCALA_VERSION": "2.13",
        # Of master and workers.
        "SPARK_DAEMON_JAVA_OPTS": " ".join((_NO_REST, *QUICK_JVM, *sharing(spark_archive()))),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }


# -- the package: what `pip install --target` brings, from what is installed here


def _package(directory: Path) -> Path:
    """A directory of the packages that a node needs, and ``.tar`` of it beside it."""
    package = directory / "kproxy-deps"
    package.mkdir()
    (package / "kproxy").symlink_to(Path(next(iter(kproxy.__path__))))
    for name in sorted(_needed({NAME, "numpy", "pyarrow"}) - {NAME}):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (package / top).symlink_to(Path(str(found.locate_file(top))))
    with tarfile.open(f"{package}.tar", "w", dereference=True) as archive:
        for top in package.iterdir():
            archive.add(top, top.name, filter=lambda info: None if _LEFT_OUT & set(Path(info.name).parts) else info)
    return package


def _needed(names: set[str]) -> set[str]:
    """The distributions and all that they require, without extras."""
    found: set[str] = set()
    while names:
        found |= names
        required = [Requirement(line) for name in names for line in distribution(name).requires or ()]
        plain = {each.name for each in required if each.marker is None or each.marker.evaluate({"extra": ""})}
        names = {canonicalize_name(name) for name in plain} - found
    return found
