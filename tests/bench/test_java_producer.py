import pytest

from bench.java_producer import java_producer, kept_producer
from kproxy.codec.accelerator import STATE


@pytest.mark.kafka
@pytest.mark.java
def test_the_real_producer_goes_through_the_relay_and_through_kproxy() -> None:
    figures = java_producer(records=2_000, rounds=1)
    assert len(figures) == (4 if STATE == "in use" else 2)
    for cpu, speed in zip(figures[::2], figures[1::2], strict=True):
        assert cpu.relay and cpu.kproxy
        assert speed.relay and speed.kproxy
        assert cpu.met is not None


@pytest.mark.kafka
@pytest.mark.java
def test_an_idempotent_producer_is_kept_and_relayed() -> None:
    [figure] = kept_producer(records=2_000, rounds=1)
    assert figure.relay
    assert figure.kproxy
    assert figure.met is not None
