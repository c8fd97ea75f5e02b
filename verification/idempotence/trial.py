"""One trial: a client writes numbered records, something happens meanwhile, and the log is read."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
    WriteTxnMarkersResponse,
)
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.ports import free_ports
from kproxy.testing.relay import Drop, Ending, FaultRelay
from kproxy.testing.relay_thread import RelayThread
from tests.interop import lossy, session
from tests.interop.catalog import Client
from tests.interop.records import PARTITIONS
from tests.support.clients import run_driver

KINDS: Final = ("lost", "broker", "epochs")
_CHUNK: Final = 15
_TIMEOUT_MS: Final = 60_000
_LOST: Final = Drop(every=7, share=0.1, ending=Ending.FIN)
_BETWEEN_S: Final = 1.5
_RAISED_BY: Final = 3


class Found(NamedTuple):
    """The trace of a client in the log; ``error``: the client gave up, and why."""

    copies: int
    missing: int
    late: int
    error: str
    seconds: float
    #: Errors about numbers that kproxy has looked into, by cause.
    repairs: str = ""


class Place(NamedTuple):
    """The place where a client connects, and the cluster."""

    kafka: RealKafka
    chain: lossy.Chain


@contextmanager
def directly() -> Iterator[Place]:
    """Client, relay, broker."""
    [port] = free_ports(1)
    relay = FaultRelay(("127.0.0.1", 0), port=port)
    advertised = f"PLAINTEXT://127.0.0.1:{port}"
    with RelayThread([relay]), RealKafka(config={"advertised.listeners": advertised}) as kafka:
        relay.upstream = ("127.0.0.1", kafka.ports[0])
        yield Place(kafka, lossy.Chain(f"127.0.0.1:{port}", kafka.bootstrap, relay.faults, [relay]))


@contextmanager
def through() -> Iterator[Place]:
    """Client, relay, kproxy, broker."""
    with ExitStack() as stack:
        kafka = stack.enter_context(RealKafka())
        log = kafka.directory / "kproxy.log"
        yield Place(kafka, stack.enter_context(lossy.through_kproxy(kafka.bootstrap, Path(log))))


def run(client: Client, kind: str, place: Place, count: int) -> Found:
    """Runs a trial on a topic of its own."""
    topic = f"{kind}.{client.name}"
    session.create_topics(place.kafka.bootstrap, [topic])
    step = session.produce_step(topic, "none", lossy.numbered(count, None))
    step.update(chunk=_CHUNK, timeout_ms=_TIMEOUT_MS)
    began, repairs = time.monotonic(), _repairs(place.chain)
    place.chain.faults.drop_answers = _LOST
    try:
        with _meanwhile(kind, place, topic):
            [result] = run_driver(client.install(), session.job(place.chain.bootstrap, client.options, [step]), 150)
    finally:
        place.chain.faults.drop_answers = None
    found = lossy.examine(place.kafka.bootstrap, topic, count)
    error = str(result.get("error", "")).partition("\n")[0][:200]
    missing = found.lost
    if place.chain.kproxy is not None:
        place.chain.kproxy.check()
    told = _difference(repairs, _repairs(place.chain))
    return Found(found.duplicates, missing, found.disorder, error, time.monotonic() - began, told)


def _repairs(chain: lossy.Chain) -> dict[str, int]:
    if chain.kproxy is None:
        return {}
    rows = [row for row in chain.kproxy.metrics().splitlines() if row.startswith("kproxy_sequence_repairs_total{")]
    return {row.partition('"')[2].partition('"')[0]: int(float(row.rpartition(" ")[2])) for row in rows}


def _difference(before: dict[str, int], after: dict[str, int]) -> str:
    rose = {cause: count - before.get(cause, 0) for cause, count in after.items()}
    return " ".join(f"{cause} {count}" for cause, count in rose.items() if count)


@contextmanager
def _meanwhile(kind: str, place: Place, topic: str) -> Iterator[None]:
    """Does it again and again until the block ends."""
    acts: dict[str, Callable[[], None]] = {
        "lost": lambda: None,
        "broker": lambda: _restart(place.kafka, topic),
        "epochs": lambda: _raise_epochs(place.kafka, topic),
    }
    act, ended = acts[kind], threading.Event()

    def work() -> None:
        for _ in range(6):
            if ended.wait(_BETWEEN_S):
                return
            act()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


def _restart(kafka: RealKafka, topic: str) -> None:
    kafka.kill(0)
    kafka.restart(0)
    with ClusterClient(kafka.bootstrap) as client:
        for partition in range(PARTITIONS):
            client.wait_served(topic, partition)


def _raise_epochs(kafka: RealKafka, topic: str) -> None:
    """Fences all producers of the topic, as a program that takes over their ids would."""
    ask = DescribeProducersRequest(
        topics=[DescribeProducersRequestTopicRequest(name=topic, partition_indexes=list(range(PARTITIONS)))]
    )
    with ClusterClient(kafka.bootstrap) as client:
        leader = client.leader(topic, 0)
        described = leader.call(ask, 0, DescribeProducersResponse)
        markers = [
            WriteTxnMarkersRequestWritableTxnMarker(
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch + _RAISED_BY,
                transaction_result=False,
                topics=[
                    WriteTxnMarkersRequestWritableTxnMarkerTopic(name=topic, partition_indexes=[part.partition_index])
                ],
                coordinator_epoch=0,
            )
            for answer in described.topics
            for part in answer.partitions
            for row in part.active_producers
        ]
        if markers:
            leader.call(WriteTxnMarkersRequest(markers=markers), 1, WriteTxnMarkersResponse)
