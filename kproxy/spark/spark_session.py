"""The Spark session of a command: Spark is started on this machine, or the one that is there already is joined."""

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from kproxy.config import StartupError
from kproxy.spark import register

# Spark's own lines and stack traces would disturb the display of progress; the command reports failures.
QUIET: Final = {"spark.log.level": "FATAL", "spark.ui.showConsoleProgress": "false"}

#: For a session of few rows on this machine: plans are interpreted, and few tasks sort.
QUICK: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
)


@contextmanager
def spark_session(name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session that knows the format ``kproxy``; it is stopped after the block.

    A session that is running already, or that spark-submit started, is joined: it keeps its configuration, and is not
    stopped. Raises StartupError if there is no Java.
    """
    joined = "PYSPARK_GATEWAY_PORT" in os.environ or SparkSession.getActiveSession() is not None
    builder = SparkSession.builder.appName(name)
    if not joined:
        _check_java()
        local = conf.get("spark.master", "local").startswith("local")
        if python := conf.get("spark.pyspark.python", sys.executable if local else ""):
            # else Spark takes the first python3 of the PATH for its workers, which may know nothing of kproxy
            os.environ.setdefault("PYSPARK_PYTHON", python)
        for option, value in {**QUIET, **conf}.items():
            builder = builder.config(option, value)
    session: SparkSession = builder.getOrCreate()
    # PySpark would print JSON and stack traces for each error, which the command reports in one line.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver"):
        logging.getLogger(logger).disabled = True
    try:
        register(session)
        yield session
    finally:
        if not joined:
            session.stop()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (Path(home, "bin", "java").exists() if home else shutil.which("java")):
        raise StartupError("Spark needs Java 17 or later: install it, or set JAVA_HOME")
