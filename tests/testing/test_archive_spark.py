"""Spark maps its classes from the archive that another one wrote."""

import os
import subprocess
from pathlib import Path

import pytest

from kproxy.testing.archive_spark import archive_spark
from kproxy.testing.spark_home import make_spark_home, spark_environment


@pytest.mark.spark
def test_spark_uses_it_from_each_home(tmp_path: Path) -> None:
    archive_spark()
    home, loaded = make_spark_home(tmp_path / "home"), tmp_path / "loaded"
    environment = os.environ | spark_environment(home)
    environment["SPARK_SUBMIT_OPTS"] += f" -Xlog:class+load:file={loaded}"
    command = [str(home / "bin" / "spark-submit"), "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert "cds" not in done.stdout + done.stderr
    lines = [line for line in loaded.read_text().splitlines() if " org.apache.spark.deploy.SparkSubmit " in line]
    assert lines
    assert all("shared objects file (top)" in line for line in lines), lines
