"""An application on kafka-python 3 that copies records in transactions, by commands (README.md: copiers)."""

import json
import sys
from typing import Any

import copying
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata


class Copier:
    """A consumer and a producer with one client.id; of the consumer's group it tells the producer the name alone."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._common = copying.common(job)
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}

    def write(self) -> str:
        job = self._job
        self._consumer = KafkaConsumer(job["source"], **copying.consumer(job))
        self._producer = KafkaProducer(transactional_id=job["id"], **self._common)
        self._producer.init_transactions()
        self._producer.begin_transaction()
        for _ in range(job["count"]):
            found = next(self._consumer)
            self._producer.send(job["target"], found.value, job["client_id"].encode()).get()
            self._positions[TopicPartition(found.topic, found.partition)] = OffsetAndMetadata(found.offset + 1, "", -1)
        return "written"

    def commit(self) -> str:
        try:
            self._producer.send_offsets_to_transaction(self._positions, self._job["group"])
            self._producer.commit_transaction()
        except Exception as error:
            self._producer.abort_transaction()
            return f"refused: {error!r}"
        return "committed"


copier = Copier(json.loads(sys.argv[1]))
for line in sys.stdin:
    print("RESULT " + {"write": copier.write, "commit": copier.commit}[line.strip()](), flush=True)
