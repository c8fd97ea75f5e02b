"""Old clients on a cluster of three brokers: each broker has its own address, coordinators and leaders lie apart."""

from collections.abc import Iterator

import pytest

from kproxy.testing.kafka import RealKafka
from tests.interop import log_files, records, session
from tests.interop.catalog import CLIENTS, NEWEST, Client
from tests.interop.proxy import KproxyProcess
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_NAMES = (
    "java-0.8.2.2-java-offsets-v1",
    "java-0.9.0.1",
    "kafka-python-1.4.7-pinned-0.8.2",
    "librdkafka-2.16.1-fallback-0.9.0.1",
    "sarama-1.19.0-0.8.2.2",
    "java-4.4.0-transactional",
)


@pytest.fixture(scope="module")
def kproxy(kafka_cluster: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KproxyProcess]:
    with KproxyProcess(kafka_cluster.bootstrap, tmp_path_factory.mktemp("kproxy") / "log") as process:
        yield process
        process.check()


@pytest.mark.parametrize("client", [client for client in CLIENTS if client.name in _NAMES], ids=lambda one: one.name)
def test_records_survive_a_restart_of_the_consumer(
    client: Client, kafka_cluster: RealKafka, kproxy: KproxyProcess
) -> None:
    topic = f"cluster.{client.name}"
    session.create_topics(kafka_cluster.bootstrap, [topic], replication=3)
    run = session.run_client(client, kproxy.bootstrap, topic, {})
    assert not run.errors, "\n\n".join(f"{step}: {error}" for step, error in run.errors.items())
    step = session.consume_step(topic, f"newest.{topic}", len(run.sent), session.EXTRA_MS)
    [newest] = run_driver(NEWEST.install(), session.job(kproxy.bootstrap, NEWEST.options, [step]))
    for reader, read in ((client.can, run.read), (NEWEST.can, newest["records"])):
        problems = records.differences(run.sent, read, reader, run.arrival_ms)
        assert not problems, problems
    for partition in range(records.PARTITIONS):
        # Every broker holds a replica of every partition.
        found = list(log_files.batches(kafka_cluster.directory / "data-1", topic, partition))
        problems = log_files.unstamped(found, own=not client.idempotent)
        assert not problems, problems
    kproxy.check()
