"""Kafka's own ``kafka-transactions.sh`` on transactions that kproxy decides."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import DEFAULT_VERSION, RealKafka
from kproxy.testing.maven import find_java, kafka_jars
from tests.interop.proxy import KproxyProcess
from tests.support.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.java]
TOPIC = "transactions-command"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KproxyProcess]:
    log = tmp_path_factory.mktemp("kproxy") / "log"
    with RealKafka() as kafka:
        with ClusterClient(kafka.bootstrap) as client:
            client.create_topic(TOPIC, 1)
        with KproxyProcess(kafka.bootstrap, log, "--transactions-home", "kproxy") as found:
            yield found
            found.check()


@pytest.fixture
def tool(proxy: KproxyProcess) -> Callable[..., str]:
    jars = kafka_jars(DEFAULT_VERSION)

    def run(*arguments: str) -> str:
        command = [find_java(), "-cp", f"{jars}/*", "org.apache.kafka.tools.TransactionsCommand"]
        command += ["--bootstrap-server", proxy.bootstrap, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    return run


def rows(table: str) -> list[list[str]]:
    """The lines after the header."""
    return [line.split() for line in table.strip().splitlines()[1:]]


def test_a_hanging_transaction_is_listed_described_and_aborted(proxy: KproxyProcess, tool: Callable[..., str]) -> None:
    options = {"transactional.id": "hangs", "transaction.timeout.ms": 600_000, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": proxy.bootstrap, **options})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"1", partition=0)
    assert not producer.flush(PATIENCE_S)
    (listed,) = [row for row in rows(tool("list")) if row[0] == "hangs"]
    assert listed[3] == "Ongoing"
    (described,) = rows(tool("describe", "--transactional-id", "hangs"))
    assert f"{TOPIC}-0" in described
    (open_here,) = rows(tool("describe-producers", "--topic", TOPIC, "--partition", "0"))
    producer_id, start = open_here[0], open_here[-1]
    assert (producer_id, start) == (listed[2], "0")
    tool("abort", "--topic", TOPIC, "--partition", "0", "--start-offset", start)
    eventually(lambda: not [row for row in rows(tool("list")) if row[0] == "hangs" and row[3] == "Ongoing"])
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(PATIENCE_S)
    assert raised.value.args[0].txn_requires_abort()
    producer.abort_transaction(PATIENCE_S)
