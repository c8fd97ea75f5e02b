"""The spark-submit line of a pipeline."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from kproxy.spark.pipeline.pipeline_model import Pipeline
from kproxy.spark.pipeline.python_steps import module_files
from kproxy.spark.spark_session import QUIET

_PYTHON = "spark.pyspark.python"


def submit_line(pipeline: Pipeline, environ: Mapping[str, str]) -> str:
    """One line for a shell: the file's Spark configuration, the modules of its steps, the program and the file.

    ``environ`` may name SPARK_HOME. The nodes need kproxy with the extra spark in their Python, or in an archive
    (``spark.archives`` and ``spark.pyspark.python``).
    """
    conf = {**QUIET, **pipeline.spark}
    master, mode = conf.pop("spark.master", "local[*]"), conf.pop("spark.submit.deployMode", "client")
    if master.startswith("local"):
        conf.setdefault(_PYTHON, sys.executable)
    words = [_spark_submit(environ), "--master", master, "--deploy-mode", mode]
    words += ["--name", f"kproxy pipeline {pipeline.name}"]
    for name, value in conf.items():
        words += ["--conf", f"{name}={value}"]
    modules = [str(file.resolve()) for path, names in pipeline.modules.items() for file in module_files(path, names)]
    if modules:
        words += ["--py-files", ",".join(modules)]
    file = str(pipeline.file.resolve())
    if mode == "cluster":
        # The driver is on another machine, which has the file in its working directory.
        words += ["--files", file]
        file = pipeline.file.name
    return shlex.join([*words, str(Path(__file__).with_name("__main__.py")), file])


def _spark_submit(environ: Mapping[str, str]) -> str:
    """That of SPARK_HOME, or of the PySpark beside kproxy: the one that pip puts on the path looks for any python3."""
    home = environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    return str(Path(home, "bin", "spark-submit"))
