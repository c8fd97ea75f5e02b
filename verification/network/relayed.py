"""Relays that lose responses, before brokers or before a kproxy, which tell clients the relays' ports."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kproxy.testing.kafka import RealKafka
from kproxy.testing.ports import free_ports
from kproxy.testing.relay import FaultRelay, Faults
from kproxy.testing.relay_thread import RelayThread
from verification.chaos.kproxy_process import KproxyProcess
from verification.network.site import running


@contextmanager
def relayed_brokers(
    faults: Faults, brokers: int = 1, *, config: Mapping[str, str] | None = None, directory: Path | None = None
) -> Iterator[tuple[RealKafka, list[FaultRelay]]]:
    """Run a Kafka with a relay before each broker, and stop both."""
    relays = [
        FaultRelay(("127.0.0.1", 0), port=port, faults=faults, seed=nth) for nth, port in enumerate(free_ports(brokers))
    ]
    ports = [relay.port for relay in relays]
    with RelayThread(relays), RealKafka(brokers, config=config, directory=directory, advertised=ports) as kafka:
        for relay, port in zip(relays, kafka.ports, strict=True):
            relay.upstream = ("127.0.0.1", port)
        yield kafka, relays


@contextmanager
def relayed_kproxy(
    kafka: RealKafka, directory: Path, faults: Faults
) -> Iterator[tuple[KproxyProcess, list[FaultRelay]]]:
    """Run a kproxy with its default options, but for the hand-over's socket, and a relay before each of its ports."""
    socket = {"handover-socket": str(directory / "handover")}
    kproxy = KproxyProcess("kproxy", kafka.bootstrap, directory, socket, defaults={})
    relays = [
        FaultRelay(("127.0.0.1", target), port=port, faults=faults, seed=nth)
        for nth, (port, target) in enumerate(zip(kproxy.advertised, kproxy.targets, strict=True))
    ]
    with RelayThread(relays), running(kproxy):
        yield kproxy, relays
