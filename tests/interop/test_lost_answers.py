"""Lost responses: every client that retries, through a relay that drops Produce responses, writes each record once.

Which clients are not here, and why: those with producer ids of their own (the broker knows their retries by itself),
kafka-node (it does not retry). kafkajs, kafka-go and sarama give a record without a timestamp a new one on every
attempt: kproxy expects that of their client.ids (`clients.new.timestamps`).

`KPROXY_INTEROP=direct` shows what the same clients leave in a Kafka 3.9.1 without kproxy.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer

from kproxy.testing.relay import Drop, Ending
from tests.interop import lossy, resender, session
from tests.interop.catalog import CLIENTS, Client
from tests.interop.records import Record
from tests.support.clients import run_driver

if TYPE_CHECKING:
    from kproxy.testing.kafka import RealKafka

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_RECORDS: Final = 3_000
_SENDS: Final = 300
_CHUNK: Final = 15
_TIMEOUT_MS: Final = 150_000
_LANES: Final = 3
"""Chains side by side, each for one client at a time: clients wait most of the time, before they retry."""
_FEWEST_DROPS: Final = 2
_LOSSES: Final = {
    "none": Drop(every=25, share=0.03, ending=Ending.FIN),
    # Fewer requests are needed, so more responses are dropped.
    "gzip": Drop(every=8, share=0.03, ending=Ending.RST),
}
_DECLARED: Final = ("--clean-close-window-ms", "60000")
"""The relay closes in good order what it loses a response on: without timestamps kproxy must be told of it."""
_DIRECT: Final = os.environ.get("KPROXY_INTEROP") == "direct"
_RETRYING: Final[dict[str, dict[str, Any]]] = {
    "java": {
        "retries": "100",
        "retry.backoff.ms": "20",
        "reconnect.backoff.ms": "20",
        "reconnect.backoff.max.ms": "100",
        "batch.size": "1000",
        "max.in.flight.requests.per.connection": "1",
        "acks": "all",
    },
    "kafka-python": {
        "retries": 100,
        "retry_backoff_ms": 20,
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 100,
        "batch_size": 1000,
        "max_in_flight_requests_per_connection": 1,
        "acks": "all",
    },
    "librdkafka": {
        "message.send.max.retries": 100,
        "retry.backoff.ms": 20,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "batch.num.messages": 10,
        "max.in.flight": 1,
    },
    "pykafka": {"max_retries": 100, "retry_backoff_ms": 20, "min_queued_messages": 10, "linger_ms": 5},
    "aiokafka": {"retry_backoff_ms": 20, "max_batch_size": 1000, "acks": "all"},
    "sarama": {"retries": "100", "in_flight": "1"},
    "kafka-go": {},
    "franz-go": {"in_flight": "1"},
    "kafkajs": {"maxInFlightRequests": 1, "retry": {"retries": 20, "initialRetryTime": 20}},
    "no-kafka": {"retries": {"attempts": 20, "delay": {"min": 20, "max": 100}}},
}
"""The settings under which each family retries, in small batches, with one request in flight."""
_IN_FLIGHT: Final[dict[str, Any]] = {
    "max.in.flight.requests.per.connection": "5",
    "max_in_flight_requests_per_connection": 5,
    "max.in.flight": 5,
    "in_flight": "5",
}
_KEEPING_ORDER: Final = ("librdkafka", "sarama")
"""Those that keep the order of retries, even with several requests in flight; others swap batches by themselves."""


def _family(client: Client) -> str:
    return next((family for family in _RETRYING if client.name.startswith(family)), "")


_CLIENTS: Final = [client for client in CLIENTS if _family(client) and not client.idempotent]
_PIPELINING: Final = [
    client
    for client in _CLIENTS
    if client.name
    in (
        "java-0.9.0.1",
        "java-2.8.2",
        "kafka-python-1.4.7-pinned-0.10",
        "kafka-python-3.0.12-plain",
        "librdkafka-2.16.1-fallback-0.9.0.1",
        "librdkafka-2.16.1",
        "sarama-1.19.0-0.10.2.1",
        "sarama-1.61.1-2.8.1",
    )
]
"""Not all: some do harm by themselves. KafkaProducer 0.10.2 to 2.0 lets batches expire, with kproxy or without.
franz-go without idempotence sends later batches on a new connection before it repeats earlier ones, has their success,
and then sends them again, on the same connection: to all who look, new records.
"""


Lanes = SimpleQueue[lossy.Chain]


@pytest.fixture(scope="module")
def lanes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    """The chains that nobody uses."""
    free: Lanes = SimpleQueue()
    with ExitStack() as running:
        if _DIRECT:
            free.put(running.enter_context(lossy.direct("3.9.1")))
        else:
            kafka: RealKafka = request.getfixturevalue("kafka")
            for _ in range(_LANES):
                log = tmp_path_factory.mktemp("kproxy") / "log"
                free.put(running.enter_context(lossy.through_kproxy(kafka.bootstrap, log, *_DECLARED)))
        yield free


@contextmanager
def _one_of(lanes: Lanes) -> Iterator[lossy.Chain]:
    """A chain that nobody else uses until the block ends."""
    chain = lanes.get()
    try:
        yield chain
    finally:
        lanes.put(chain)


@pytest.fixture
def chain(lanes: Lanes) -> Iterator[lossy.Chain]:
    with _one_of(lanes) as one:
        yield one


def _options(client: Client, more: Mapping[str, Any]) -> dict[str, Any]:
    producer = {**client.options.get("producer", {}), **_RETRYING[_family(client)], **more}
    return {**client.options, "producer": producer}


def _lose_answers(
    chain: lossy.Chain,
    client: Client,
    topic: str,
    codec: str,
    drop: Drop,
    more: Mapping[str, Any],
    batches: Sequence[list[Record]],
) -> lossy.Findings:
    """Let a client send batches of records, one after the other, while answers are lost; return what the log says."""
    steps = [session.produce_step(topic, codec, batch) for batch in batches]
    for step in steps:
        step.update(chunk=_CHUNK, timeout_ms=_TIMEOUT_MS)
    before = chain.dropped()
    chain.faults.drop_answers = drop
    try:
        job = session.job(chain.bootstrap, _options(client, more), steps)
        results = run_driver(client.install(), job, _TIMEOUT_MS / 1000)
    finally:
        chain.faults.drop_answers = None
    for result in results:
        assert "error" not in result, result["error"]
    assert chain.dropped() - before >= _FEWEST_DROPS
    if chain.kproxy is not None:
        chain.kproxy.check()
    return lossy.examine(chain.broker, topic, sum(map(len, batches)))


def _records() -> list[list[Record]]:
    """Without timestamps: so sarama, kafkajs and kafka-go give a record a new one when they send it again."""
    return [lossy.numbered(_RECORDS, None)]


def _expect(found: lossy.Findings, *, in_order: bool) -> None:
    """Fail with just the figures."""
    if found.duplicates or found.lost or (in_order and found.disorder):
        pytest.fail(str(found), pytrace=False)


@dataclass(frozen=True)
class Case:
    """A client that writes numbered records to a topic of its own while answers are lost."""

    topic: str
    client: Client
    codec: str
    drop: Drop
    more: dict[str, Any] = field(default_factory=dict)


def _pipelined(client: Client, ending: Ending) -> Case:
    more = {setting: value for setting, value in _IN_FLIGHT.items() if setting in _RETRYING[_family(client)]}
    drop = Drop(every=25, share=0.03, ending=ending)
    return Case(f"lost.pipelined.{ending.value}.{client.name}", client, "none", drop, more)


_ONE_IN_FLIGHT: Final = {
    f"{client.name}-{codec}": Case(f"lost.{codec}.{client.name}", client, codec, drop)
    for codec, drop in _LOSSES.items()
    for client in _CLIENTS
}
_SEVERAL_IN_FLIGHT: Final = {
    f"{client.name}-{ending}": _pipelined(client, ending) for ending in Ending for client in _PIPELINING
}


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, lanes: Lanes) -> Iterator[dict[str, Future[lossy.Findings]]]:
    """What the log says by topic, after each client has written, some at a time; of those whose tests are to run."""

    def run(case: Case) -> lossy.Findings:
        with _one_of(lanes) as chain:
            session.create_topics(chain.broker, [case.topic])
            return _lose_answers(chain, case.client, case.topic, case.codec, case.drop, case.more, _records())

    with ThreadPoolExecutor(lanes.qsize()) as pool:
        yield {case.topic: pool.submit(run, case) for case in session.asked(request, "case") if _is_served(case.client)}
        pool.shutdown(cancel_futures=True)


def _is_served(client: Client) -> bool:
    return client.on_3_9 or not _DIRECT


def _of(case: Case, found: Mapping[str, Future[lossy.Findings]]) -> lossy.Findings:
    if not _is_served(case.client):
        pytest.skip("Kafka 3.9.1 does not serve this client: this is a check of the drivers, without kproxy")
    return found[case.topic].result()


@pytest.mark.parametrize("case", _ONE_IN_FLIGHT.values(), ids=_ONE_IN_FLIGHT)
def test_each_record_is_there_once_and_in_order(case: Case, found: Mapping[str, Future[lossy.Findings]]) -> None:
    _expect(_of(case, found), in_order=True)


@pytest.mark.parametrize("case", _SEVERAL_IN_FLIGHT.values(), ids=_SEVERAL_IN_FLIGHT)
def test_with_several_requests_in_flight_each_record_is_there_once(
    case: Case, found: Mapping[str, Future[lossy.Findings]]
) -> None:
    _expect(_of(case, found), in_order=_family(case.client) in _KEEPING_ORDER)


@pytest.mark.parametrize("ending", list(Ending))
def test_equal_payloads_that_are_no_retries_are_neither_doubled_nor_merged(
    ending: Ending, chain: lossy.Chain, request: pytest.FixtureRequest
) -> None:
    topic = f"equal.{ending.value}"
    session.create_topics(chain.broker, [topic])
    sends = resender.half_equal(_SENDS, session.now_ms())
    # Every send loses its first response, and some lose the next one too.
    chain.faults.drop_answers = Drop(every=2, share=0.1, ending=ending)
    request.addfinalizer(lambda: setattr(chain.faults, "drop_answers", None))
    with resender.Resender(chain.bootstrap, topic, f"model-{ending.value}") as producer:
        for send in sends:
            producer.send(send)
    assert producer.lost_answers >= _SENDS // 2
    found = resender.compare(chain.broker, topic, sends)
    assert found == resender.Comparison(doubled=0, merged=0, in_order=True)


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("name", ["librdkafka-2.16.1-fallback-0.9.0.1", "librdkafka-2.16.1"])
def test_records_that_a_retry_puts_together_with_later_ones_are_there_once(
    name: str, in_flight: int, chain: lossy.Chain, request: pytest.FixtureRequest
) -> None:
    topic = f"regrouped.{in_flight}.{name}"
    session.create_topics(chain.broker, [topic])
    client = next(client for client in CLIENTS if client.name == name)
    settings = {
        **_options(client, {"max.in.flight": in_flight})["producer"],
        "batch.num.messages": 1000,
        "linger.ms": 0,
    }
    producer = Producer(
        {"bootstrap.servers": chain.bootstrap, "error_cb": lambda _: None, **settings}, logger=session.QUIET
    )
    failed: list[str] = []
    chain.faults.drop_answers = Drop(every=4, share=0.03)  # on a busy machine batches are large, and few
    request.addfinalizer(lambda: setattr(chain.faults, "drop_answers", None))
    before = chain.dropped()
    for number, fields in enumerate(session.raw(lossy.numbered(_RECORDS, session.now_ms()))):
        producer.produce(topic, on_delivery=lambda error, _: error and failed.append(error.str()), **fields)
        if number % 5 == 0:
            # Slower than the responses come: a batch has a handful of records, a retried one finds others waiting.
            producer.poll(0.001)
    assert producer.flush(_TIMEOUT_MS / 1000) == 0
    assert not failed
    assert chain.dropped() - before >= _FEWEST_DROPS
    _expect(lossy.examine(chain.broker, topic, _RECORDS), in_order=True)


@pytest.mark.parametrize("name", ["java-1.1.1", "java-2.0.1"])
def test_batches_that_java_splits_because_they_are_too_large_are_there_once(name: str, chain: lossy.Chain) -> None:
    client = next(client for client in CLIENTS if client.name == name)
    topic = f"split.{name}"
    session.create_topics(chain.broker, [topic], config={"max.message.bytes": "3000"})
    # Java guesses how well the next batch compresses from the last ones: after records that compress well it fills
    # batches of those that do not beyond batch.size, and splits what the broker finds too large.
    sent = lossy.numbered(8_000, None, noise=300)
    halves = sent[: lossy.quiet(8_000)], sent[lossy.quiet(8_000) :]
    drop = Drop(every=25, share=0.03)
    found = _lose_answers(chain, client, topic, "gzip", drop, {"batch.size": "2000"}, halves)
    _expect(found, in_order=True)
