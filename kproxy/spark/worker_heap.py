"""The memory of Spark's Python workers, which do one task after the other.

PySpark's daemon searches all objects of a worker for garbage after each task. With what PySpark, Arrow and kproxy have
imported that takes 45 ms of a processor; a micro-batch that reads and writes four partitions has ten such searches.
"""

import os
from functools import cache

from kproxy.heap import settle

#: Of the environment of workers that are kept for the next task: the others end, and search for nothing.
_KEPT = "SPARK_REUSE_WORKER"


@cache
def settle_worker() -> None:
    """Called at the end of a task: what is there at the end of the first one is left out of later searches."""
    if os.environ.get(_KEPT):
        settle()
