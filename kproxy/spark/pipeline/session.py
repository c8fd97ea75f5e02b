"""The Spark session that a pipeline runs in."""

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from kproxy.config import StartupError
from kproxy.spark.pipeline.model import Pipeline
from kproxy.spark.pipeline.python_steps import module_files

# Spark's own lines would run through the display of progress; what fails is told by the pipeline.
QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}


def open_session(pipeline: Pipeline) -> SparkSession:
    """Starts Spark, or joins the one that spark-submit started, whose configuration then stays as it is.

    Raises StartupError if there is no Java.
    """
    builder = SparkSession.builder.appName(f"kproxy pipeline {pipeline.name}")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        _check_java()
        _choose_python(pipeline)
        for name, value in {**QUIET, **pipeline.spark}.items():
            builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    for path in pipeline.module_paths:
        # Where spark-submit has brought them to another machine they are there already.
        for file in module_files(path) if path.exists() else ():
            session.sparkContext.addPyFile(str(file))
    return session


def is_local(pipeline: Pipeline) -> bool:
    """Whether Spark runs on this machine alone."""
    return pipeline.spark.get("spark.master", "local[*]").startswith("local")


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (Path(home, "bin", "java").exists() if home else shutil.which("java")):
        raise StartupError("Spark needs Java 17 or later: install it, or set JAVA_HOME")


def _choose_python(pipeline: Pipeline) -> None:
    """Else Spark takes the first python3 of the PATH for its workers, which may know nothing of kproxy."""
    named = pipeline.spark.get("spark.pyspark.python") or (sys.executable if is_local(pipeline) else None)
    if named:
        os.environ.setdefault("PYSPARK_PYTHON", named)
