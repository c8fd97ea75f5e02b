"""The topic settings that the fake knows by name, with Kafka's defaults."""

from typing import Final

from kproxy.testing.fake_broker.log import DEFAULT_MAX_MESSAGE_BYTES

DYNAMIC_TOPIC_CONFIG: Final = 1
DEFAULT_CONFIG: Final = 5
TOPIC_DEFAULTS: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.message.bytes": str(DEFAULT_MAX_MESSAGE_BYTES),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
BROKER_DEFAULTS: Final = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "1",
    "message.max.bytes": str(DEFAULT_MAX_MESSAGE_BYTES),
    "min.insync.replicas": "1",
    "num.partitions": "1",
    "producer.id.expiration.ms": "86400000",
}
