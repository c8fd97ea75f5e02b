"""Idempotence for clients that have none: producer ids and sequences for brokers, retries recognised for clients."""
