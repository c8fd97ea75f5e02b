"""The packaging recipe of docs/spark-clusters.md: two workers without kproxy, and a control API over HTTPS."""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka, die_with_parent
from kproxy.testing.maven import find_java
from kproxy.testing.ports import free_ports
from tests.net.certificates import Authority
from tests.spark import cluster_job
from verification.copiers.processes import Kproxy

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]
SECONDS = 300
RECORDS = 1000
PARTITIONS = 4
WORKERS = 2
#: A Python that has nothing installed but itself, as on the nodes of a cluster.
PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    home, java = Path(pyspark.__file__).parent, Path(find_java()).resolve().parent.parent
    return {**kept, "SPARK_HOME": str(home), "JAVA_HOME": str(java), "PYSPARK_PYTHON": str(PYTHON), **more}


@contextmanager
def process(log: Path, *arguments: str) -> Iterator[None]:
    """A class of Spark's own jars."""
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    command = [find_java(), *QUICK.split(), "-Xmx256m", "-cp", str(jars), *arguments]
    with log.open("wb") as output:
        started = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment(), preexec_fn=die_with_parent()
        )
    try:
        yield
    finally:
        started.terminate()
        started.wait(SECONDS)


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """A master and its workers, with one core each; the URL."""
    (port,) = free_ports(1)
    url, deploy = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as running:
        master = directory / "master.log"
        running.enter_context(process(master, f"{deploy}.master.Master", *here, "--port", str(port)))
        for number in range(WORKERS):
            log, work = directory / f"worker-{number}.log", directory / f"worker-{number}"
            its = ("-c", "1", "-m", "600m", "-d", str(work), url)
            running.enter_context(process(log, f"{deploy}.worker.Worker", *here, *its))
        deadline = time.monotonic() + SECONDS
        while master.read_text(errors="replace").count("Registering worker") < WORKERS:
            assert time.monotonic() < deadline, master.read_text(errors="replace")[-2000:]
            time.sleep(0.1)
        yield url


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``kproxy.tar`` of the recipe, with the directory ``kproxy-deps`` that it is made of beside it."""
    directory = tmp_path_factory.mktemp("archive")
    dependencies = directory / "kproxy-deps"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    done = subprocess.run(
        [*install, "--target", str(dependencies), str(ROOT), "confluent-kafka", "pyarrow"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(directory / "kproxy.tar", "w") as made:
        for each in dependencies.iterdir():
            made.add(each, each.name)
    return directory / "kproxy.tar"


def test_executors_that_know_nothing_of_kproxy_and_a_control_api_over_https(
    kafka: RealKafka, archive: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files, (port,) = authority.issue("127.0.0.1"), free_ports(1)
    token = tmp_path / "token"
    token.write_text("correct-horse-battery")
    control = [
        *("--control-http", f"127.0.0.1:{port}", "--control-token-file", str(token)),
        *("--control-ssl-certificate-location", str(files.certificate)),
        *("--control-ssl-key-location", str(files.key)),
    ]
    with ClusterClient(kafka.bootstrap) as client:
        for topic in ("cluster-in", "cluster-out"):
            client.create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(RECORDS):
        producer.produce("cluster-in", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    del producer  # it would keep asking for brokers
    with (
        Kproxy("spark-cluster", kafka.bootstrap, tmp_path, *control) as kproxy,
        standalone_cluster(tmp_path) as master,
    ):
        kproxy.wait_ready()
        there = {"kafka.bootstrap.servers": kproxy.bootstrap}
        job = {
            "source": {**there, "subscribe": "cluster-in"},
            "copy": {**there, "subscribe": "cluster-out"},
            "sink": {
                **there,
                "topic": "cluster-out",
                "transactional.id": "cluster",
                "kproxy.control.url": f"https://127.0.0.1:{port}",
                "kproxy.control.token.file": str(token),
                "kproxy.control.ssl.ca.location": str(authority.ca),
            },
            "checkpoint": str(tmp_path / "checkpoint"),
        }
        settings = {
            "spark.executorEnv.PYTHONPATH": "kproxy",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.driver.extraJavaOptions": QUICK,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.locality.wait": "0s",
            "spark.ui.enabled": "false",
        }
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master]
        command += ["--archives", f"{archive}#kproxy"]
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [*command, cluster_job.__file__, json.dumps(job)],
            env=environment(PYTHONPATH=str(archive.with_name("kproxy-deps"))),
            cwd=tmp_path,  # not where kproxy is
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert kproxy.bugs() == []
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["records"], found["values"]) == (RECORDS, RECORDS)
    assert len(found["places"]) == WORKERS
    assert all(Path(module).is_relative_to(directory) for directory, module in found["places"])
