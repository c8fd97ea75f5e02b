"""The data source with Spark Connect: what works, and what says that it does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.spark_home import spark_environment
from verification.copiers.processes import Kproxy

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SECONDS = 600
SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}


def test_a_client_of_spark_connect(kafka: RealKafka, spark_home: Path, tmp_path: Path) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        for topic in ("connect-first", "connect-second", "connect-third"):
            client.create_topic(topic, 2)
    socket = tmp_path / "control.sock"
    flags = [f"--conf {name}={value}" for name, value in SETTINGS.items()]
    environment = {
        **os.environ,
        **spark_environment(spark_home),
        "PYSPARK_SUBMIT_ARGS": " ".join([*flags, "pyspark-shell"]),
    }
    with Kproxy("spark-connect", kafka.bootstrap, tmp_path, "--control-socket", str(socket)) as kproxy:
        kproxy.wait_ready()
        job = {
            "sink": {"kafka.bootstrap.servers": kproxy.bootstrap, "kproxy.control.socket": str(socket)},
            "first": "connect-first",
            "second": "connect-second",
            "third": "connect-third",
            "checkpoint": str(tmp_path / "checkpoint"),
        }
        command = [sys.executable, "-m", "tests.spark.connect_job", json.dumps(job)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ended"]
    assert found["seen"] == [str(number) for number in range(10)]
    assert found["counted"] == [[["0", "5"], ["1", "5"]]] * 2  # started again it has nothing to write
    assert "unknown option 'subscripe' of the source" in found["wrong"]
