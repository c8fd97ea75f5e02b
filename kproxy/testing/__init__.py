"""For tests of users, too: a real Kafka from Maven artefacts, a fake broker, a relay that injects faults, a client."""
