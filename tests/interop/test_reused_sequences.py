"""librdkafka aborts a transaction while the response to a batch is lost, and uses the batch's sequences again.

It takes the batch for unsent. The broker, and kproxy, take what has these sequences for the batch that they have.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kproxy.codec.batch import iter_records
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import DEFAULT_VERSION, RealKafka
from kproxy.testing.relay import Drop, Ending
from tests.interop import lossy
from tests.interop.session import QUIET
from tests.support.patience import PATIENCE_S, eventually

pytestmark = pytest.mark.kafka

_SETTINGS: Final = {
    "retry.backoff.ms": 300,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    # all records of a transaction are one batch
    "linger.ms": 50,
}
#: Each record whose sequence is used again costs one transaction.
_MOST_TRIES: Final = 5


class Client:
    """A transactional producer at the end of a chain, and the offsets of its acknowledged records."""

    def __init__(self, chain: lossy.Chain) -> None:
        self.topic = f"reused-{uuid4().hex[:8]}"
        self.chain = chain
        self.delivered: list[tuple[str, int | None]] = []
        with ClusterClient(chain.broker) as broker:
            broker.create_topic(self.topic, 1)
        settings: dict[str, Any] = {"bootstrap.servers": chain.bootstrap, "transactional.id": self.topic, **_SETTINGS}
        self.producer = Producer(settings, logger=QUIET)
        self.producer.init_transactions(PATIENCE_S)

    def begin(self, values: Sequence[str]) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered.append(((message.value() or b"").decode(), message.offset()))

    def commit(self, *values: str) -> int:
        """As an application does it: what can't be committed is aborted and tried again; how often it was aborted."""
        for tried in range(_MOST_TRIES):
            self.begin(values)
            try:
                self.producer.commit_transaction(PATIENCE_S)
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                assert error.txn_requires_abort(), error
                self.producer.abort_transaction(PATIENCE_S)
            else:
                return tried
        raise AssertionError(f"{values} can't be committed in {_MOST_TRIES} transactions")

    def abort_unheard(self, *values: str) -> None:
        """Aborts a transaction whose batch was written, and its response lost."""
        dropped = self.chain.dropped()
        self.chain.faults.drop_answers = Drop(share=1.0, ending=Ending.RST)
        self.begin(values)
        eventually(lambda: self.producer.poll(0.02) is not None and self.chain.dropped() > dropped)
        self.producer.abort_transaction(PATIENCE_S)
        self.chain.faults.drop_answers = None

    def committed(self) -> list[tuple[str, int]]:
        """What a read_committed consumer finds, with its offsets."""
        with ClusterClient(self.chain.bootstrap) as client:
            data = client.read_all(self.topic, isolation_level=1)
        rows = iter_records(data, max_decompressed_bytes=1 << 20)
        return [((row.value or b"").decode(), row.offset) for row in rows]


@pytest.fixture(params=["kproxy", "broker-fenced"])
def client(kafka: RealKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    with ExitStack() as stack:
        chain = stack.enter_context(
            lossy.through_kproxy(kafka.bootstrap, tmp_path / "log", "--transactions-home", request.param)
        )
        yield Client(chain)
        assert chain.kproxy is not None
        chain.kproxy.check()


@pytest.mark.parametrize(
    ("lost", "then", "aborts"),
    [(1, 1, 1), (3, 1, 3), (1, 3, 1)],
    ids=["the same number", "fewer records than before", "more records than before"],
)
def test_what_is_acknowledged_and_committed_is_there(client: Client, lost: int, then: int, aborts: int) -> None:
    assert client.commit("1") == 0
    client.abort_unheard(*["no"] * lost)
    values = [f"2{number}" for number in range(then)]
    assert client.commit(*values) <= aborts  # none where the client has heard of the batch
    assert client.commit("3") == 0
    assert [value for value, _ in client.delivered] == ["1", *values, "3"]
    assert client.delivered == client.committed()


def test_kafka_alone_acknowledges_a_record_that_it_does_not_write() -> None:
    """librdkafka 2.16.1 with Kafka 4.4.0. With another number of records its error is fatal, and nothing is lost."""
    with lossy.direct(DEFAULT_VERSION) as chain:
        client = Client(chain)
        assert client.commit("1") == 0
        client.abort_unheard("no")
        assert client.commit("2") == 0
        assert client.commit("3") == 0
        assert [value for value, _ in client.delivered] == ["1", "2", "3"]
        assert [value for value, _ in client.committed()] == ["1", "3"]
