"""Equal records that are no retries: of clients without timestamps, and of two programs with one client.id."""

import base64
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.relay import Drop, Ending, FaultRelay
from kproxy.testing.relay_thread import RelayThread
from tests.interop import resender, session
from tests.interop.catalog import CLIENTS, Client
from tests.interop.proxy import KproxyProcess
from tests.interop.records import PARTITIONS
from tests.support.clients import run_driver

pytestmark = pytest.mark.kafka
_OLD: Final = ("kafka-python-1.4.7-pinned-0.8.2", "kafka-python-1.4.7-pinned-0.9")
_SENDS: Final = 400
_LIMIT: Final = 1 << 26


@pytest.fixture(scope="module")
def kproxy(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KproxyProcess]:
    """With the default options."""
    with KproxyProcess(kafka.bootstrap, tmp_path_factory.mktemp("kproxy") / "log") as process:
        yield process
        process.check()


@pytest.fixture(params=_OLD)
def client(request: pytest.FixtureRequest) -> Client:
    return next(client for client in CLIENTS if client.name == request.param)


def run(client: Client, bootstrap: str, topic: str, values: Sequence[str]) -> int:
    """A process that writes records, waits for the responses and ends; the records that were acknowledged."""
    records: list[dict[str, Any]] = [
        {"p": 0, "k": None, "v": base64.b64encode(value.encode()).decode(), "ts": None, "h": []} for value in values
    ]
    [result] = run_driver(
        client.install(), session.job(bootstrap, client.options, [session.produce_step(topic, "none", records)])
    )
    assert "error" not in result, result["error"]
    return len(result["acked"])


def log_of(kafka: RealKafka, topic: str) -> list[bytes | None]:
    with ClusterClient(kafka.bootstrap) as reader:
        data = [reader.read_all(topic, partition) for partition in range(PARTITIONS)]
    return [record.value for one in data for record in iter_records(one, max_decompressed_bytes=_LIMIT)]


def test_each_of_equal_records_by_a_process_of_its_own_is_written(
    client: Client, kafka: RealKafka, kproxy: KproxyProcess
) -> None:
    topic = f"states.{client.name}"
    session.create_topics(kafka.bootstrap, [topic])
    states = ("open", "closed", "open", "closed", "open")
    assert sum(run(client, kproxy.bootstrap, topic, [state]) for state in states) == 5
    assert log_of(kafka, topic) == [state.encode() for state in states]


def test_what_a_script_writes_is_written_each_time_that_it_runs(
    client: Client, kafka: RealKafka, kproxy: KproxyProcess
) -> None:
    topic = f"twice.{client.name}"
    session.create_topics(kafka.bootstrap, [topic])
    assert sum(run(client, kproxy.bootstrap, topic, 20 * ["same"]) for _ in range(2)) == 40
    assert log_of(kafka, topic) == 40 * [b"same"]


@pytest.mark.parametrize("ending", list(Ending))
def test_two_programs_of_one_name_have_all_their_equal_records_written_though_one_loses_responses(
    ending: Ending, kafka: RealKafka, tmp_path: Path
) -> None:
    topic = f"programs.{ending.value}"
    session.create_topics(kafka.bootstrap, [topic])
    sends = resender.half_equal(_SENDS, session.now_ms())
    relay = FaultRelay(("127.0.0.1", 0))
    with KproxyProcess(kafka.bootstrap, tmp_path / "log") as kproxy, RelayThread([relay]):
        with resender.Resender(kproxy.bootstrap, topic, "rdkafka") as steady:
            relay.upstream = steady.place
            with resender.Resender(kproxy.bootstrap, topic, "rdkafka") as losing:
                losing.place = ("127.0.0.1", relay.port)
                steady.send(sends[0])
                relay.faults.drop_answers = Drop(every=5, ending=ending)
                both = [
                    threading.Thread(target=lambda: [losing.send(send) for send in sends]),
                    threading.Thread(target=lambda: [steady.send(send) for send in sends[1:]]),
                ]
                for thread in both:
                    thread.start()
                for thread in both:
                    thread.join()
        assert relay.counts.dropped_answers[ApiKey.PRODUCE] > _SENDS // 8
        kproxy.check()
    wanted = Counter(record.value for send in sends for record in send.records)
    assert Counter(log_of(kafka, topic)) == Counter({value: 2 * count for value, count in wanted.items()})
