"""The topic settings that the fake knows by name, with Kafka's defaults."""

from collections.abc import Callable, Mapping
from typing import Final

from kproxy.testing.fake_broker.partition_log import DEFAULT_MAX_MESSAGE_BYTES

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
#: The values that a setting takes, for settings that take words; all others take numbers.
_WORDS: Final = {
    "cleanup.policy": {"delete", "compact", "compact,delete", "delete,compact"},
    "compression.type": {"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
    "unclean.leader.election.enable": {"true", "false"},
}
_MOST: Final = 2**63 - 1
_LEAST: Final = {"min.insync.replicas": 1, "max.message.bytes": 0, "retention.ms": -1, "retention.bytes": -1}
#: An error message is a string of 32,767 bytes at most.
_SHOWN: Final = 255


def config_error(config: Mapping[str, str | None]) -> str | None:
    """Return why these settings of a topic are INVALID_CONFIG; None if they are valid."""
    for name, value in sorted(config.items()):
        if name not in TOPIC_DEFAULTS:
            return f"Unknown topic config name: {name[:_SHOWN]}"
        if value is None:
            return f"Null value not supported for topic configs: {name}"
        if not _is_valid(name, value):
            return f"Invalid value {value[:_SHOWN]} for configuration {name}"
    return None


def _is_valid(name: str, value: str) -> bool:
    if name in _WORDS:
        return value in _WORDS[name]
    if name == "min.cleanable.dirty.ratio":
        ratio = _number(float, value)
        return ratio is not None and 0 <= ratio <= 1
    number = _number(int, value)
    return number is not None and _LEAST.get(name, 0) <= number <= _MOST


def _number(kind: Callable[[str], float], value: str) -> float | None:
    try:
        return kind(value)
    except ValueError:
        return None
