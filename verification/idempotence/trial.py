"""One trial: a client writes numbered records, something happens meanwhile, and the log is read."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kproxy.testing.kafka import RealKafka
from kproxy.testing.ports import free_ports
from kproxy.testing.relay import Drop, Ending, FaultRelay, Faults
from kproxy.testing.relay_thread import RelayThread
from tests.interop import lossy, session
from tests.interop.catalog import Client
from tests.interop.lossy import Written
from tests.support.clients import run_driver
from verification.idempotence.acts import CLUSTER, KINDS, Kind, meanwhile

_CHUNK: Final = 15
_TIMEOUT_MS: Final = 60_000
_PATIENCE_S: Final = 150
_LOST: Final = Drop(every=7, share=0.1, ending=Ending.FIN)


class Found(NamedTuple):
    """The trace of a client in the log; ``error``: the client gave up, and why."""

    copies: int
    missing: int
    late: int
    error: str
    seconds: float
    #: Errors about numbers that kproxy has looked into, by cause.
    repairs: str = ""
    #: Records that kproxy says are lost.
    told: int = 0


class Place(NamedTuple):
    """The place where a client connects, and the cluster."""

    kafka: RealKafka
    chain: lossy.Chain


@contextmanager
def directly(brokers: int) -> Iterator[Place]:
    """Client, relays, brokers."""
    ports, faults = free_ports(brokers), Faults()
    relays = [FaultRelay(("127.0.0.1", 0), port=port, faults=faults, seed=port - ports[0]) for port in ports]
    with RelayThread(relays), RealKafka(brokers, config=_settings(brokers), advertised=ports) as kafka:
        for relay, port in zip(relays, kafka.ports, strict=True):
            relay.upstream = ("127.0.0.1", port)
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        yield Place(kafka, lossy.Chain(bootstrap, kafka.bootstrap, faults, relays))


@contextmanager
def through(brokers: int) -> Iterator[Place]:
    """Client, relay, kproxy, brokers."""
    with ExitStack() as stack:
        kafka = stack.enter_context(RealKafka(brokers, config=_settings(brokers)))
        log = kafka.directory / "kproxy.log"
        yield Place(kafka, stack.enter_context(lossy.through_kproxy(kafka.bootstrap, Path(log))))


def _settings(brokers: int) -> Mapping[str, str]:
    return CLUSTER if brokers > 1 else {}


def run(client: Client, name: str, place: Place, count: int) -> Found:
    """Runs a trial on a topic of its own."""
    topic, kind, written = f"{name}.{client.name}", KINDS[name], Written()
    session.create_topics(place.kafka.bootstrap, [topic], config=kind.config, places=kind.places)
    step = session.produce_step(topic, "none", lossy.numbered(count, None))
    step.update(chunk=_CHUNK, timeout_ms=_TIMEOUT_MS)
    began, repairs, told = time.monotonic(), _repairs(place.chain), _told(place.chain)
    place.chain.faults.drop_answers = _LOST
    try:
        with meanwhile(kind, place.kafka, topic, written):
            job = session.job(place.chain.bootstrap, client.options, [step])
            [result] = run_driver(client.install(), job, _PATIENCE_S)
    finally:
        place.chain.faults.drop_answers = None
    written.read(place.kafka.bootstrap, topic)
    found = written.compare(count)
    error = str(result.get("error", "")).partition("\n")[0][:200]
    if place.chain.kproxy is not None:
        place.chain.kproxy.check()
    rose = _difference(repairs, _repairs(place.chain))
    seconds = time.monotonic() - began
    return Found(found.duplicates, found.lost, found.disorder, error, seconds, rose, _told(place.chain) - told)


def is_bad(found: Found, kind: Kind) -> bool:
    """Whether something is wrong beyond what the brokers have lost."""
    return bool(found.copies or found.late or ((found.missing or found.error) and not kind.loses))


def _told(chain: lossy.Chain) -> int:
    if chain.kproxy is None:
        return 0
    rows = [row for row in chain.kproxy.metrics().splitlines() if row.startswith("kproxy_lost_records_total")]
    return sum(int(float(row.rpartition(" ")[2])) for row in rows)


def _repairs(chain: lossy.Chain) -> dict[str, int]:
    if chain.kproxy is None:
        return {}
    rows = [row for row in chain.kproxy.metrics().splitlines() if row.startswith("kproxy_sequence_repairs_total{")]
    return {row.partition('"')[2].partition('"')[0]: int(float(row.rpartition(" ")[2])) for row in rows}


def _difference(before: dict[str, int], after: dict[str, int]) -> str:
    rose = {cause: count - before.get(cause, 0) for cause, count in after.items()}
    return " ".join(f"{cause} {count}" for cause, count in rose.items() if count)
