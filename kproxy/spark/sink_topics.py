"""Whether the topics that the sink writes to exist: else a broker might create one of a misspelt name."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from kproxy.spark.kafka_cluster import KafkaCluster
from kproxy.spark.sink_options import CREATES_TOPICS, SinkOptions
from kproxy.spark.spark_errors import KafkaError

#: Brokers learn of a topic that was just created one after the other.
_PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.2


class SinkTopics:
    """The topics that are known to exist. One thread's."""

    def __init__(self, options: SinkOptions, client_id: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._options = options
        self._client_id = client_id
        self._sleep = sleep
        self._known: set[str] = set()

    def check(self, names: Iterable[str]) -> None:
        """Asks for those that are not known yet.

        KafkaError if one does not exist and ``kafka.allow.auto.create.topics`` is not set, or if nobody answers.
        """
        unknown = set(names) - self._known
        if not unknown or self._options.creates_topics:
            return
        with self._options.open_cluster(self._client_id) as cluster:
            missing = self._missing(cluster, unknown)
        if missing:
            raise KafkaError(
                f"topic {sorted(missing)[0]!r} does not exist: create it, or set {CREATES_TOPICS} to true for a broker "
                "that may create topics (auto.create.topics.enable)"
            )
        self._known |= unknown

    def _missing(self, cluster: KafkaCluster, names: set[str]) -> set[str]:
        waited = 0.0
        while True:
            missing = names - cluster.partitions(names).keys()
            if not missing or waited >= _PATIENCE_SECONDS:
                return missing
            self._sleep(_PAUSE_SECONDS)
            waited += _PAUSE_SECONDS
