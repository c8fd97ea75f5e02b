"""One Spark session for all tests that need one: starting it costs seconds, so it is started when first asked for."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kproxy.testing.maven import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Tests ask much that is little: the quick compiler is done before the thorough one would begin.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session with two cores and the format ``kproxy``, shared by all tests: change no setting of it."""
    from pyspark.sql import SparkSession

    from kproxy.spark import register

    with pytest.MonkeyPatch.context() as environment:
        java = find_java()
        environment.setenv("JAVA_HOME", str(Path(java).resolve().parent.parent))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").appName("kproxy-tests")
        for key, value in _CONF.items():
            builder = builder.config(key, value)
        builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        yield session
        session.stop()
