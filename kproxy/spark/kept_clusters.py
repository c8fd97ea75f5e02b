"""Connections that a worker of Spark's keeps for its next task, which mostly reads from the same brokers."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from kproxy.proxy.routing import Address
from kproxy.spark.kafka_cluster import KafkaCluster
from kproxy.spark.read_options import ReadOptions
from kproxy.spark.security_options import Security
from kproxy.spark.worker_heap import is_kept

_MOST = 4


class _Kind(NamedTuple):
    """What tells one cluster from another."""

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_s: float
    patience_s: float
    security: Security


@contextmanager
def kept_cluster(options: ReadOptions) -> Iterator[KafkaCluster]:
    """A cluster for one task, alone: one that an earlier task has used, else a new one.

    It is closed after an error, and in processes that end with their task.
    """
    kind = _Kind(options.bootstrap, options.client_id, options.request_timeout_s, options.patience_s, options.security)
    cluster = _taken(kind) or options.open_cluster(first_patience_s=None)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    if not is_kept():
        cluster.close()
        return
    kept = _kept()
    kept.append((kind, cluster))
    while len(kept) > _MOST:
        kept.popleft()[1].close()


@cache
def _kept() -> deque[tuple[_Kind, KafkaCluster]]:
    """Of this process, which does one task at a time: those that no task uses, the oldest first."""
    return deque()


def _taken(kind: _Kind) -> KafkaCluster | None:
    kept = _kept()
    for entry in kept:
        if entry[0] == kind:
            kept.remove(entry)
            return entry[1]
    return None
