"""How many partitions the sink's topics have; one that does not exist may be a misspelt name."""

import time
from collections.abc import Callable
from typing import Final

from kproxy.spark.kafka_cluster import KafkaCluster
from kproxy.spark.sink_options import CREATES_TOPICS
from kproxy.spark.spark_errors import KafkaError

#: Brokers learn of a topic that was just created one after the other.
_PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.2


class SinkTopics:
    """The topics of one driver or attempt. One thread's."""

    def __init__(self, cluster: KafkaCluster, *, create: bool, sleep: Callable[[float], None] = time.sleep) -> None:
        """``create``: the broker may create a topic that does not exist."""
        self._cluster = cluster
        self._create = create
        self._sleep = sleep
        self._known: dict[str, int] = {}

    def has(self, name: str) -> bool:
        """Whether a topic is known, so that ``partitions`` asks nobody."""
        return name in self._known

    def partitions(self, name: str) -> int:
        """How many a topic has. KafkaError if it does not exist, or if nobody answers."""
        waited = 0.0
        while name not in self._known:
            self._known |= self._cluster.partitions([name], create=self._create)
            if name not in self._known and waited >= _PATIENCE_SECONDS:
                raise KafkaError(self._missing(name))
            if name not in self._known:
                self._sleep(_PAUSE_SECONDS)
                waited += _PAUSE_SECONDS
        return self._known[name]

    def _missing(self, name: str) -> str:
        if self._create:
            return (
                f"topic {name!r} does not exist, and no broker creates it: create it, or set auto.create.topics.enable"
            )
        return (
            f"topic {name!r} does not exist: create it, or set {CREATES_TOPICS} to true for a broker that may create "
            "topics (auto.create.topics.enable)"
        )
