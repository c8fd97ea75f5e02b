"""Kafka's wire format: messages of every version, record batches of every magic, compression and checksums."""
