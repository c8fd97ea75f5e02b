"""Test tools, also for users: a real Kafka from Maven artefacts, a fake broker, a relay with faults, a client."""
