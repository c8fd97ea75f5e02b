"""kproxy: a Kafka-compatible proxy that adds idempotence and transactions to clients that have none."""

__version__ = "0.1.0"
