"""Pipelines: a YAML file names sources, steps and sinks; Spark and kproxy run them exactly once.

    import os
    from pathlib import Path

    from kproxy.spark.pipeline import load, run

    pipeline = load(Path("orders.yaml"), os.environ)  # FileError names file, line and key of all that is wrong
    run(pipeline)

``load`` starts no JVM.
"""

from kproxy.config.config_faults import FileError
from kproxy.spark.pipeline.display import choose as choose_display
from kproxy.spark.pipeline.pipeline_load import load, read
from kproxy.spark.pipeline.pipeline_model import Pipeline
from kproxy.spark.pipeline.pipeline_run import run
from kproxy.spark.pipeline.submit import submit_line

__all__ = ["FileError", "Pipeline", "choose_display", "load", "read", "run", "submit_line"]
