"""What a read_committed consumer of the brokers finds that knows nothing of kproxy: librdkafka."""

import time
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.support.patience import PATIENCE_S


def read_committed(bootstrap: str, topic: str, partitions: int, level: str = "read_committed") -> list[list[str]]:
    """The values in each partition now, up to where all is decided; at the other level, all of them."""
    options = {"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "log_level": 0}
    consumer = Consumer({**options, "isolation.level": level, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: list[list[str]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(ended) < partitions:
            message = consumer.poll(1.0)
            assert time.monotonic() < deadline
            if message is None:
                continue
            partition = message.partition()
            assert partition is not None
            if message.error() is None:
                values[partition].append((message.value() or b"").decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
    finally:
        consumer.close()
    return values
