import pytest

from bench.java_producer import java_producer


@pytest.mark.kafka
@pytest.mark.java
def test_the_real_producer_goes_through_the_relay_and_through_kproxy() -> None:
    cpu, speed = java_producer(records=2_000, rounds=1)
    assert cpu.relay and cpu.kproxy
    assert speed.relay and speed.kproxy
    assert cpu.met is not None
