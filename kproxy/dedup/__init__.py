"""Idempotence for clients that have none: lanes, sequences, and what becomes of each send (KIP-98, KIP-360)."""
