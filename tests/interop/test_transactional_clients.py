"""Released clients' transactions, in all homes: decided by kproxy on its own log, or by Kafka, with kproxy or without.

All clients write side by side to the same two topics, so their transactions lie between each other's.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop import log_files, results, session
from tests.interop import transaction_script as scripts
from tests.interop.conftest import VERSIONS
from tests.interop.homes import HOMES, OF_BROKERS, RECORDED, Home, clients_of, rule_and_release
from tests.interop.records import PARTITIONS, Record
from tests.interop.transactional import READERS, TRANSACTIONAL, Reader, Transactional
from tests.support.clients import run_driver
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_AT_A_TIME: Final = 6
"""Clients wait most of the time: for their predecessor's place in the group to become free."""
_SCRIPT_READERS: Final = (
    "java-4.4.0",
    "librdkafka-2.16.1",
    "sarama-1.61.1",
    "kafka-go-0.4.51",
    "kafka-python-1.4.7-pinned-0.10",
)
_OWN_BITS: Final = 3 << 61
"""Set in every producer id of kproxy's transactions."""


def _readers(home: str) -> list[str]:
    """Who reads what all clients wrote: of what the broker has decided only those that hide something by themselves."""
    chosen = [reader for reader in READERS if reader.name in _SCRIPT_READERS]
    return [reader.name for reader in chosen if reader.native or home not in OF_BROKERS]


def _clients_in(homes: Iterable[str]) -> pytest.MarkDecorator:
    """Run a test for each client in each of these homes."""
    params = [pytest.param((name, client), id=f"{name}-{client.name}") for name in homes for client in clients_of(name)]
    return pytest.mark.parametrize("run", params, indirect=True)


_each_client = _clients_in(HOMES)


@dataclass
class Run:
    """What came of one client's processes."""

    home: Home
    script: scripts.Script
    outcomes: list[str | None] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    positions_between: int = 0
    positions: int = 0


def _topics(home: Home) -> tuple[str, str]:
    """The topics of all scripts."""
    return f"{home.name}.one", f"{home.name}.two"


def _source(home: Home) -> str:
    """The topic that all clients copy."""
    return f"{home.name}.source"


def _target(home: Home, client: str) -> str:
    """Where a client copies to."""
    return f"{home.name}.copy.{client}"


_Runs = dict[str, Future[Run]]
_Seen = dict[tuple[str, str], list[Record]]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, home: Callable[..., Home]) -> Iterator[dict[str, _Runs]]:
    """Start all clients of all homes whose tests are to run, some at a time."""

    def start(name: str) -> _Runs:
        place = home(name, recorded=name in RECORDED)
        clients = clients_of(name)
        topics = [*_topics(place), _source(place), *(_target(place, client.name) for client in clients)]
        session.create_topics(place.kafka.bootstrap, topics)
        _fill(place)
        return {client.name: pool.submit(_run, client, place) for client in clients}

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield {name: start(name) for name in dict.fromkeys(name for name, _ in session.asked(request, "run"))}
        pool.shutdown(cancel_futures=True)


def _fill(home: Home) -> None:
    """Write what is copied; the transaction also sees to it that its coordinator is ready, which sarama 1.37 needs."""
    producer = Producer({"bootstrap.servers": home.bootstrap, "transactional.id": f"fill.{home.name}"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(scripts.SOURCE_RECORDS):
        producer.produce(_source(home), b"%d" % number, b"%d" % number, partition=number % PARTITIONS)
    producer.commit_transaction(PATIENCE_S)


def _run(client: Transactional, home: Home) -> Run:
    run = Run(home, scripts.script(client.name, _topics(home)))
    last = "kill" if client.soon_forgotten else "abort"
    before, after = scripts.copy_steps(client.name, _source(home), _target(home, client.name), last)
    first = _drive(client, home, [run.script.step(), *before])
    run.outcomes = first[0].get("outcomes") or []
    killed = "exit code 9" in first[-1].get("error", "")
    run.positions_between = _positions(home, client.name)
    second = _drive(client, home, after)
    run.positions = _positions(home, client.name)
    counted = (*first[:-1], *second) if killed and client.soon_forgotten else (*first, *second)
    run.errors = [f"{result['op']}: {result['error']}" for result in counted if "error" in result]
    return run


def _drive(client: Transactional, home: Home, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    consumer = {**client.options.get("consumer", {}), **client.committed}
    job = session.job(home.bootstrap, {**client.options, "consumer": consumer}, steps)
    return run_driver(client.install(), job)


def _positions(home: Home, client: str) -> int:
    """Return the sum of the offsets that the group of a copying client has committed, decided ones only."""
    admin = AdminClient({"bootstrap.servers": home.bootstrap})
    asked = ConsumerGroupTopicPartitions(scripts.group(_source(home), client))
    [answer] = admin.list_consumer_group_offsets([asked]).values()
    return sum(max(0, found.offset) for found in answer.result(PATIENCE_S).topic_partitions)


@pytest.fixture
def run(request: pytest.FixtureRequest, runs: dict[str, _Runs]) -> Run:
    """What came of the client that the test is about."""
    name, client = request.param
    return runs[name][client.name].result()


def _expect_none(problems: str) -> None:
    if problems:
        pytest.fail(problems, pytrace=False)


@_each_client
def test_every_step_succeeds(run: Run) -> None:
    if run.home.kproxy is not None:
        run.home.kproxy.check()
    _expect_none("\n\n".join(run.errors))
    failed = {index: text for index, text in enumerate(run.outcomes) if text and index not in run.script.fenced()}
    assert not failed
    assert len(run.outcomes) == len(run.script.actions)


@_each_client
def test_a_fenced_producer_gets_its_error_in_the_clients_own_words(run: Run) -> None:
    client = next(client for client in TRANSACTIONAL if client.name == run.script.client)
    for index in run.script.fenced():
        assert re.search(client.fenced, run.outcomes[index] or "succeeded"), run.outcomes[index]


@_each_client
def test_offsets_move_with_the_records_or_not_at_all(run: Run) -> None:
    assert run.positions_between == scripts.COPIED_BEFORE_KILL
    assert run.positions == scripts.SOURCE_RECORDS
    copies = _read_here(run.home, _target(run.home, run.script.client))
    # What a client reads of several partitions at a time it copies in any order between them.
    wanted = [scripts.record(f"{number}", number % PARTITIONS) for number in range(scripts.SOURCE_RECORDS)]
    _expect_none(scripts.problem(wanted, copies))


def _read_here(home: Home, topic: str) -> list[Record]:
    """Read a topic's committed records to its end, with the librdkafka in this process."""
    consumer = Consumer(
        {"bootstrap.servers": home.bootstrap, "group.id": "unused", "enable.partition.eof": True}
        | {"enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    records: list[Record] = []
    ends = 0
    try:
        while ends < PARTITIONS:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{topic} stalls after {len(records)} records"
            value, partition = message.value(), message.partition()
            if message.error() is None and value is not None and partition is not None:
                records.append(scripts.record(value.decode(), partition))
            else:
                ends += 1
    finally:
        consumer.close()
    return records


@pytest.fixture(scope="module")
def seen(runs: dict[str, _Runs]) -> Callable[[str], _Seen]:
    """Give what each reader read of each of a home's two topics, after all clients have written."""

    @functools.cache
    def read(name: str) -> _Seen:
        written = [future.result() for future in runs[name].values()]
        home, made = written[0].home, [run.script for run in written]
        readers = [reader for reader in READERS if reader.name in _readers(name)]
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            found = list(pool.map(lambda reader: _read(reader, home, made), readers))
        everything = {("all", topic): _read_all(home, topic, made) for topic in _topics(home)}
        return everything | {
            (reader.name, topic): records
            for reader, topics in zip(readers, found, strict=True)
            for topic, records in topics.items()
        }

    return read


def _read(reader: Reader, home: Home, written: list[scripts.Script]) -> dict[str, list[Record]]:
    counts = {topic: sum(len(each.expected(topic, committed=True)) for each in written) for topic in _topics(home)}
    steps = [
        session.consume_step(topic, f"read.{topic}.{reader.name}", count, session.EXTRA_MS)
        for topic, count in counts.items()
    ]
    results = run_driver(reader.install(), session.job(home.bootstrap, reader.options, steps))
    for result in results:
        assert "error" not in result, f"{reader.name}: {result['error']}"
    return {topic: result["records"] for topic, result in zip(counts, results, strict=True)}


def _read_all(home: Home, topic: str, written: list[scripts.Script]) -> list[Record]:
    client = next(client for client in TRANSACTIONAL if client.name == "librdkafka-2.16.1")
    count = sum(len(each.expected(topic, committed=False)) for each in written)
    step = session.consume_step(topic, f"all.{topic}", count, session.EXTRA_MS)
    job = session.job(home.bootstrap, {**client.options, "consumer": client.uncommitted}, [step])
    [result] = run_driver(client.install(), job)
    assert "error" not in result, result["error"]
    records: list[Record] = result["records"]
    return records


@pytest.mark.parametrize(
    ("reader", "run"),
    [
        pytest.param(reader, (name, client), id=f"{name}-{reader}-{client.name}")
        for name in HOMES
        for reader in (*_readers(name), "all")
        for client in clients_of(name)
    ],
    indirect=["run"],
)
def test_exactly_the_committed_records_are_read_and_all_by_who_asks_for_all(
    reader: str, run: Run, seen: Callable[[str], _Seen]
) -> None:
    for topic in _topics(run.home):
        wanted = run.script.expected(topic, committed=reader != "all")
        found = scripts.of_client(run.script.client, seen(run.home.name)[reader, topic])
        problem = scripts.problem(wanted, found)
        _expect_none(problem and f"{topic}: {problem}")


@_each_client
def test_the_log_shows_whose_the_transactions_are(run: Run) -> None:
    own = run.home.name.startswith("kproxy")
    for partition in range(PARTITIONS):
        topic = _target(run.home, run.script.client)
        found = list(log_files.batches(run.home.kafka.directory / "data-1", topic, partition))
        assert found
        for batch in found:
            assert batch.transactional != own, batch
            assert (batch.producer_id & _OWN_BITS == _OWN_BITS) == own, batch


@_clients_in(name for name in HOMES if name in RECORDED)
def test_the_docs_say_which_versions_of_requests_it_sends(
    run: Run, record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> None:
    assert run.home.requests is not None
    client = run.script.client
    found = run.home.requests.of(run.script.id, scripts.group(_source(run.home), client))
    home, holder = run.home.name, results.holder(client)
    release = rule_and_release(home)[1]
    if home in results.LISTED:
        record_property(VERSIONS, (holder, release, found))
    if not request.config.getoption("--record-clients"):
        assert found == results.read()[holder].versions[release]
