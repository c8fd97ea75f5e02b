"""Fixtures for the whole session: real Kafka clusters and Spark, started when the first test asks for them."""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

from kproxy.testing.kafka import PATIENT, RealKafka
from kproxy.testing.spark_home import make_spark_home, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.folders", "tests.foreign", "tests.hangs", "tests.unpassed"]

# How fast examples are made says nothing of kproxy, only of what else the machine does.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

_SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
}


def pytest_collection_finish() -> None:
    """Garbage is searched for in what tests make. In all that they import, too, each search would take 0.4 s."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Extensions that are never released would report that as leaks when Python ends."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    """What a test sets up of the process's logging ends with it, as the stream does to which it writes."""
    handlers = logging.getLogger().handlers[:]
    yield
    if structlog.is_configured():
        logging.getLogger().handlers[:] = handlers
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def kafka() -> Iterator[RealKafka]:
    """One broker, shared by all tests: use topics, groups and ids of your own, and do not kill it."""
    with RealKafka(config=PATIENT) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[RealKafka]:
    """Three brokers, shared by all tests: who kills one starts it again."""
    with RealKafka(brokers=3, config={"min.insync.replicas": "2"}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark's processes name SPARK_HOME, for all tests."""
    return make_spark_home(tmp_path_factory.mktemp("spark") / "home")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_home: Path) -> Iterator["SparkSession"]:
    """A session with two cores, the format ``kproxy``, and ``kafka`` and ``avro`` of Spark: change no setting."""
    from pyspark.sql import SparkSession

    from kproxy.spark import register
    from verification.spark_proof.connector import avro_jars, connector_jars

    with pytest.MonkeyPatch.context() as environment:
        for name, value in spark_environment(spark_home).items():
            environment.setenv(name, value)
        builder = SparkSession.builder.master("local[2]").appName("kproxy-tests")
        for key, value in _SPARK.items():
            builder = builder.config(key, value)
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in [*connector_jars(), *avro_jars()]))
        builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        yield session
        session.stop()
