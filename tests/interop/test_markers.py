"""Consumers of all kinds on logs with control batches, through kproxy: each gets the data records and nothing else.

In one topic kproxy itself has written the markers, since it was killed and started again while an old producer wrote;
in the other they end Kafka's own transactions.
"""

import base64
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from confluent_kafka import Message, Producer

from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
    WriteTxnMarkersResponse,
)
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop import log_files, session
from tests.interop.catalog import CLIENTS, Client
from tests.interop.proxy import KproxyProcess
from tests.interop.records import PARTITIONS
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_AT_A_TIME: Final = 5
"""Clients wait most of the time: to join their group, and for records that should not come."""
_FENCES, _NATIVE = "markers.fences", "markers.native"
_PER_PARTITION: Final = 7
_STARTS: Final = 3
"""How often kproxy is started: each time but the first it fences what its former self has written."""
_ENDINGS: Final = (False, True, False, True, True, False)
"""Of Kafka's own transactions: whether they are committed."""
_EXTRA_MS: Final = 1500
_AT_THE_END_S: Final = 5.0
"""By then a consumer has mostly come to the end; one that is slower sees less, and none fails for it."""
_OLD: Final = {"client.id": "old", "api.version.request": False, "broker.version.fallback": "0.10.2.1", "linger.ms": 20}
_NAMELESS: Final = (
    "java-0.11.0.3",
    "java-1.1.1",
    "java-2.0.1",
    "kafka-python-1.4.7",
    "kafka-python-2.0.2",
    "aiokafka-0.14.0",
    "kafka-go-0.4.51",
    "kafkajs-2.2.4",
)
"""Clients that Kafka 4 serves and that do not name their software, so that kproxy looks through what they read."""
_WAITING: Final = ("java-2.0.1", "kafka-python-2.0.2", "kafka-go-0.4.51", "kafkajs-2.2.4")
_DELIVER: Final = {"kafka-python-1.4.7", "kafka-python-2.0.2", "kafka-go-0.4.51"}
"""Those that deliver control records where they read from the broker; docs/semantics.md lists them."""
_MARKER_VALUE: Final = base64.b64encode(bytes(6)).decode()
_OTHER_PRODUCER: Final = log_files.OWN_PID_BIT | 0x7777


@dataclass(frozen=True)
class _Logs:
    """Where the topics can be read, and for each the data records: partition, offset, value, and if it is committed."""

    bootstrap: str
    written: dict[str, list[tuple[int, int, str, bool]]]
    kproxy: KproxyProcess

    def expected(self, topic: str, *, committed: bool) -> dict[int, list[tuple[int, str]]]:
        """The offsets and values of each partition, in order."""
        rows = sorted(row for row in self.written[topic] if row[3] or not committed)
        return {number: [(row[1], row[2]) for row in rows if row[0] == number] for number in range(PARTITIONS)}


class _Writer:
    """Writes records and notes where they are."""

    def __init__(self, bootstrap: str, topic: str, **options: Any) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, **options})
        self._topic = topic
        self.rows: list[tuple[int, int, str, bool]] = []

    def write(self, label: str, *, committed: bool = True) -> None:
        def note(error: object, message: Message) -> None:
            assert error is None, error
            value = message.value()
            assert value is not None
            self.rows.append((message.partition() or 0, message.offset() or 0, value.decode(), committed))

        for number in range(_PER_PARTITION * PARTITIONS):
            value = f"{label} {number}"
            self.producer.produce(self._topic, value, value, number % PARTITIONS, on_delivery=note)
        assert self.producer.flush(60) == 0


def _fence(client: ClusterClient, epoch: int, topic_name: str = _FENCES) -> None:
    """What kproxy sends to fence a producer, also one that the partitions have never seen."""
    topic = WriteTxnMarkersRequestWritableTxnMarkerTopic(name=topic_name, partition_indexes=list(range(PARTITIONS)))
    marker = WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=_OTHER_PRODUCER,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=0,
    )
    answer = client.any_broker().call(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
    assert all(row.error_code == 0 for each in answer.markers for t in each.topics for row in t.partitions)


def _write_fences(kafka: RealKafka, kproxy: KproxyProcess) -> list[tuple[int, int, str, bool]]:
    """Records of an old producer, a marker before the first, between them, and two at the end."""
    rows = []
    with ClusterClient(kafka.bootstrap) as client:
        _fence(client, 1)
        for number in range(_STARTS):
            if number:
                kproxy.kill()
                kproxy.__enter__()
            codec = "gzip" if number == 1 else "none"
            writer = _Writer(kproxy.bootstrap, _FENCES, **_OLD, **{"compression.type": codec})
            writer.write(f"start {number}")
            rows += writer.rows
        for epoch in (2, 3):
            _fence(client, epoch)
    return rows


def _write_transactions(kafka: RealKafka) -> list[tuple[int, int, str, bool]]:
    writer = _Writer(kafka.bootstrap, _NATIVE, **{"transactional.id": _NATIVE, "linger.ms": 20})
    writer.producer.init_transactions(30)
    for number, committed in enumerate(_ENDINGS):
        writer.producer.begin_transaction()
        writer.write(f"transaction {number}", committed=committed)
        end = writer.producer.commit_transaction if committed else writer.producer.abort_transaction
        end(30)
    return writer.rows


@pytest.fixture(scope="module")
def logs(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Logs]:
    session.create_topics(kafka.bootstrap, [_FENCES, _NATIVE])
    with KproxyProcess(kafka.bootstrap, tmp_path_factory.mktemp("markers") / "log") as kproxy:
        written = {_NATIVE: _write_transactions(kafka), _FENCES: _write_fences(kafka, kproxy)}
        yield _Logs(kproxy.bootstrap, written, kproxy)
        kproxy.check()


def _cases(client: Client) -> list[tuple[Client, bool]]:
    """A client with each isolation level, and whether it is to be shown committed records only."""
    if client.isolation is None:
        # Below Fetch v4, which carries no headers, nobody can ask; kproxy shows them what is committed.
        return [(client, not client.can.reads_headers)]
    cases = []
    for committed, settings in enumerate(client.isolation):
        options = {**client.options, "consumer": {**client.options.get("consumer", {}), **settings}}
        level = "committed" if committed else "uncommitted"
        cases.append((replace(client, name=f"{client.name}-{level}", options=options), bool(committed)))
    return cases


_CASES: Final = {case.name: (case, committed) for client in CLIENTS for case, committed in _cases(client)}


def _read(client: Client, committed: bool, logs: _Logs) -> dict[str, dict[str, Any]]:
    steps = []
    for topic in (_FENCES, _NATIVE):
        count = sum(map(len, logs.expected(topic, committed=committed).values()))
        steps.append(session.consume_step(topic, f"{topic}.{client.name}", count, _EXTRA_MS))
    results = run_driver(client.install(), session.job(logs.bootstrap, client.options, steps))
    return dict(zip((_FENCES, _NATIVE), results, strict=True))


def _client(name: str) -> Client:
    return next(client for client in CLIENTS if client.name == name)


def _read_directly(name: str, bootstrap: str, count: int) -> dict[str, Any]:
    """What a client reads from the broker."""
    client = _client(name)
    step = session.consume_step(_FENCES, f"direct.{name}", count, _EXTRA_MS)
    [result] = run_driver(client.install(), session.job(bootstrap, client.options, [step]))
    return result


def _wait_at_the_end(name: str, kafka: RealKafka, logs: _Logs) -> tuple[_Writer, dict[str, Any]]:
    """What a client reads that has waited before markers at the end when more is written, and the writer."""
    topic, client = f"markers.tail.{name}", _client(name)
    session.create_topics(kafka.bootstrap, [topic])
    writer = _Writer(logs.bootstrap, topic, **_OLD)
    writer.write("before")
    with ClusterClient(kafka.bootstrap) as cluster, ThreadPoolExecutor(1) as pool:
        _fence(cluster, 1, topic)
        _fence(cluster, 2, topic)
        step = session.consume_step(topic, f"group.{topic}", 2 * len(writer.rows), _EXTRA_MS)
        reading = pool.submit(run_driver, client.install(), session.job(logs.bootstrap, client.options, [step]))
        time.sleep(_AT_THE_END_S)
        writer.write("after")
        [result] = reading.result()
    return writer, result


_Found = dict[tuple[str, str], Future[Any]]


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, kafka: RealKafka, logs: _Logs) -> Iterator[_Found]:
    """What each client reads, some at a time, by kind (`case`, `direct`, `tail`) and name; if its tests are to run."""
    wanted = {(kind, name) for kind in ("case", "direct", "tail") for name in session.asked(request, kind)}
    count = sum(map(len, logs.expected(_FENCES, committed=False).values()))
    jobs: dict[tuple[str, str], tuple[Any, ...]] = {
        ("tail", name): (_wait_at_the_end, name, kafka, logs) for name in _WAITING
    }
    jobs |= {("case", name): (_read, *_CASES[name], logs) for name in _CASES}
    jobs |= {("direct", name): (_read_directly, name, kafka.bootstrap, count) for name in _NAMELESS}
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield {key: pool.submit(*job) for key, job in jobs.items() if key in wanted}
        pool.shutdown(cancel_futures=True)


def test_the_logs_hold_markers_where_they_are_wanted(kafka: RealKafka, logs: _Logs) -> None:
    """Else the other tests would prove nothing: at the start, in the middle and at the end of each partition."""
    for partition in range(PARTITIONS):
        fences = [batch.control for batch in log_files.batches(kafka.directory / "data-1", _FENCES, partition)]
        assert (fences[0], fences[-3:]) == (True, [False, True, True])
        # one of kproxy's for each former self of each start: the third start fences both
        assert sum(fences) == 3 + sum(range(_STARTS))
        native = [batch.control for batch in log_files.batches(kafka.directory / "data-1", _NATIVE, partition)]
        assert sum(native) == len(_ENDINGS)
    found = re.search(r'^kproxy_fences_total\{outcome="done"\} (\S+)$', logs.kproxy.metrics(), re.M)
    assert found is not None and float(found[1]) == PARTITIONS * (_STARTS - 1)


@pytest.mark.parametrize("topic", [_FENCES, _NATIVE])
@pytest.mark.parametrize("case", _CASES)
def test_a_consumer_gets_the_data_records_and_no_control_record(
    case: str, topic: str, logs: _Logs, found: _Found
) -> None:
    _, committed = _CASES[case]
    result = found["case", case].result()[topic]
    assert "error" not in result, result["error"]
    read: dict[int, list[tuple[int, str]]] = {number: [] for number in range(PARTITIONS)}
    for record in result["records"]:
        value = base64.b64decode(record["v"] or "").decode("utf-8", "replace")
        read[record["p"]].append((record["o"], value))
    assert read == logs.expected(topic, committed=committed)


@pytest.mark.parametrize("direct", _NAMELESS)
def test_which_clients_deliver_control_records_that_they_read_from_the_broker(direct: str, found: _Found) -> None:
    """kproxy could pass them to the others, too, if it knew them."""
    result = found["direct", direct].result()
    assert "error" not in result, result["error"]
    assert any(record["v"] == _MARKER_VALUE for record in result["records"]) == (direct in _DELIVER)


@pytest.mark.parametrize("tail", _WAITING)
def test_a_consumer_that_waits_before_markers_at_the_end_gets_what_comes_after_them(tail: str, found: _Found) -> None:
    writer, result = found["tail", tail].result()
    assert "error" not in result, result["error"]
    read = sorted((record["p"], record["o"], base64.b64decode(record["v"]).decode()) for record in result["records"])
    assert read == sorted(row[:3] for row in writer.rows)
