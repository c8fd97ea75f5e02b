"""Connections that a worker of Spark's keeps for its next task, which mostly reads from the same brokers."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from kproxy.spark.kafka_cluster import KafkaCluster
from kproxy.spark.read_options import ReadOptions
from kproxy.spark.worker_heap import is_kept

_MOST = 4


@contextmanager
def kept_cluster(options: ReadOptions) -> Iterator[KafkaCluster]:
    """A cluster for one task, alone: one that a task of the same options has used, else a new one.

    It is closed after an error, and in processes that end with their task.
    """
    cluster = _taken(options) or options.open_cluster(first_patience_s=None)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    if not is_kept():
        cluster.close()
        return
    kept = _kept()
    kept.append((options, cluster))
    while len(kept) > _MOST:
        kept.popleft()[1].close()


@cache
def _kept() -> deque[tuple[ReadOptions, KafkaCluster]]:
    """The clusters of this process that no task uses, by their options, the oldest first."""
    return deque()


def _taken(options: ReadOptions) -> KafkaCluster | None:
    kept = _kept()
    for entry in kept:
        if entry[0] == options:
            kept.remove(entry)
            return entry[1]
    return None
