"""Brokers to test against: a real Kafka from Maven artefacts, and a fake one that speaks the same protocol."""
