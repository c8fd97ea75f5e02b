"""The spark-submit line of a pipeline."""

import shlex
import shutil
import sys
from pathlib import Path

import kproxy.spark.pipeline
from kproxy.spark.pipeline.model import Pipeline
from kproxy.spark.pipeline.python_steps import module_files

_PYTHON = "spark.pyspark.python"


def submit_line(pipeline: Pipeline) -> str:
    """One line for a shell: the file's Spark configuration, the modules of its steps, the program and the file.

    The nodes need kproxy[spark] in their Python, or in an archive (``spark.archives`` and ``spark.pyspark.python``).
    """
    conf = dict(pipeline.spark)
    master, mode = conf.pop("spark.master", "local[*]"), conf.pop("spark.submit.deployMode", "client")
    if master.startswith("local"):
        conf.setdefault(_PYTHON, sys.executable)
    words = [_spark_submit(), "--master", master, "--deploy-mode", mode, "--name", f"kproxy pipeline {pipeline.name}"]
    for name, value in conf.items():
        words += ["--conf", f"{name}={value}"]
    modules = [str(file.resolve()) for path in pipeline.module_paths for file in module_files(path)]
    if modules:
        words += ["--py-files", ",".join(modules)]
    file = str(pipeline.file.resolve())
    if mode == "cluster":
        # The driver is on another machine, which has the file in its working directory.
        words += ["--files", file]
        file = pipeline.file.name
    return shlex.join([*words, str(Path(kproxy.spark.pipeline.__file__).with_name("__main__.py")), file])


def _spark_submit() -> str:
    beside = Path(sys.executable).with_name("spark-submit")
    return "spark-submit" if shutil.which("spark-submit") or not beside.exists() else str(beside)
