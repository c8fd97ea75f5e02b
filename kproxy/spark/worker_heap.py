"""The memory of Spark's Python workers, which do one task after the other.

PySpark's daemon searches all objects of a worker for garbage after each task. With what PySpark, Arrow and kproxy have
imported that takes 45 ms of a processor; a micro-batch that reads and writes four partitions has ten such searches.
"""

import os
from functools import cache

from kproxy.heap import settle


def is_kept() -> bool:
    """Whether this is a worker that Spark keeps for the next task; others end, and search for nothing."""
    return bool(os.environ.get("SPARK_REUSE_WORKER"))


@cache
def settle_worker() -> None:
    """Called at the end of a task: what is there at the end of the first one is left out of later searches."""
    if is_kept():
        settle()
