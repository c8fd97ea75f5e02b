"""`transactions.home: broker-fenced`: clients of KIP-98's first protocol, whose transactions Kafka 4.4.0 decides."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
)
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec.messages import ErrorCode, Message
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.raw_connection import RawConnection
from kproxy.testing.relay import FaultRelay
from kproxy.testing.relay_thread import RelayThread
from kproxy.txn.ids import Producer as Identity
from tests.interop.broker_home import Stage, headers_in
from tests.interop.proxy import KproxyProcess
from tests.net.txn.wire_producer import produce_request, transactional_batch
from tests.support.patience import PATIENCE_S, eventually, repeat_while
from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.check import check
from verification.history.operations import Kind, Operation, Outcome, Poll, Send

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_TIMEOUT_MS: Final = 60_000
_RETRIABLE: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


@pytest.fixture
def stage(kafka: RealKafka, tmp_path: Path) -> Iterator[Stage]:
    name = f"fenced-{uuid4().hex[:8]}"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(name, 1)
    options = ("--transactions-home", "broker-fenced", "--instance-id", name)
    with KproxyProcess(kafka.bootstrap, tmp_path / "log", *options) as kproxy:
        yield Stage(kafka, kproxy, name)
        kproxy.check()


@dataclass
class Client:
    """A producer that keeps its epoch, whose sequences continue over its transactions; one broker does all for it."""

    name: str
    connection: RawConnection
    identity: Identity = field(default_factory=lambda: Identity(-1, -1))
    sequence: int = 0

    def initialize(self) -> int:
        answer: Any = self._until_definite(InitProducerIdRequest(self.name, _TIMEOUT_MS, *self.identity), 4, _error)
        if not answer.error_code:
            self.identity, self.sequence = Identity(answer.producer_id, answer.producer_epoch), 0
        return int(answer.error_code)

    def add(self) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequestAddPartitionsToTxnTopic(self.name, [0])],
        )
        return self._error(request, 3, _partition_error)

    def write(self, value: str) -> int:
        batch = transactional_batch(value, self.identity, self.sequence)
        error = self._error(produce_request(self.name, {(self.name, 0): batch}), 9, _produce_error)
        self.sequence += not error
        return error

    def ending(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(self.name, *self.identity, committed)

    def end(self, *, committed: bool) -> int:
        return self._error(self.ending(committed=committed), 3, _error)

    def transaction(self, value: str, *, committed: bool = True) -> None:
        assert [self.add(), self.write(value), self.end(committed=committed)] == [0, 0, 0]

    def _error(self, request: Message, version: int, error_of: Callable[[Any], int]) -> int:
        return error_of(self._until_definite(request, version, error_of))

    def _until_definite(self, request: Message, version: int, error_of: Callable[[Any], int]) -> Any:
        answer: Any = repeat_while(
            lambda answer: error_of(answer) in _RETRIABLE, lambda: self.connection.call(request, version)
        )
        assert error_of(answer) not in _RETRIABLE, answer
        return answer


def _error(answer: Any) -> int:
    return int(answer.error_code)


def _partition_error(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _produce_error(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def test_each_transaction_of_librdkafka_has_an_epoch_of_its_own_at_the_broker(stage: Stage) -> None:
    options = {"bootstrap.servers": stage.kproxy.bootstrap, "transactional.id": stage.name, "log_level": 0}
    first, source = Producer(options), f"{stage.name}-group"
    first.init_transactions(PATIENCE_S)
    _, began = stage.state()
    for value, ends in (("1", True), ("no", False), ("2", True)):
        first.begin_transaction()
        first.produce(stage.name, value)
        first.flush(PATIENCE_S)  # an abort drops what librdkafka has not sent yet
        offsets = [TopicPartition(stage.name, 0, int(value) if ends else 9)]
        consumer = Consumer({"bootstrap.servers": stage.kproxy.bootstrap, "group.id": source})
        first.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        if ends:
            first.commit_transaction(PATIENCE_S)
        else:
            first.abort_transaction(PATIENCE_S)
        [committed] = consumer.committed([TopicPartition(stage.name, 0)], PATIENCE_S)
        assert committed.offset == (int(value) if ends else 1)
        consumer.close()
    assert stage.values() == ["1", "2"]
    assert stage.state()[1] >= began + 3
    with ClusterClient(stage.kafka.bootstrap) as client:
        data = [header for header in headers_in(client.read_all(stage.name)) if not header.is_control]
    assert [header.base_sequence for header in data] == [0, 0, 0]
    assert len({header.producer_epoch for header in data}) == 3
    second = Producer(options)
    second.init_transactions(PATIENCE_S)
    first.begin_transaction()
    first.produce(stage.name, "late")
    with pytest.raises(KafkaException, match=r"(?i)fenced|epoch"):
        first.commit_transaction(PATIENCE_S)
    second.begin_transaction()
    second.produce(stage.name, "3")
    second.commit_transaction(PATIENCE_S)
    assert stage.values() == ["1", "2", "3"]


def _held_end(stage: Stage, at: tuple[str, int]) -> tuple[list[Anomaly], int]:
    """What a late EndTxn does to the next transaction, which its client aborts; and what the client receives then."""
    with ExitStack() as opened:
        relays = opened.enter_context(RelayThread([FaultRelay(at)]))
        [relay] = relays.relays
        with RawConnection("127.0.0.1", relay.port) as older:
            client = Client(stage.name, older)
            assert client.initialize() == 0
            assert [client.add(), client.write("1")] == [0, 0]
            relays.call(relay.pause)
            older.send(client.ending(committed=True), 3)
        client.connection = opened.enter_context(RawConnection(*at))  # it has waited long enough, and asks again
        assert client.end(committed=True) == 0
        assert [client.add(), client.write("2")] == [0, 0]
        relays.call(relay.resume)
        eventually(lambda: not relay.connections or stage.state()[0] != "Ongoing")
        told = client.end(committed=False)
    sends = [("1", Outcome.OK), ("2", Outcome.FAIL)]
    history = [
        Operation("client", Kind.TXN, outcome, at, at + 1, (Send(stage.name, 0, None, value),))
        for at, (value, outcome) in enumerate(sends)
    ]
    read = Poll(stage.name, 0, tuple(stage.read()))
    return check([*history, Operation("reader", Kind.POLL, Outcome.OK, 5, 6, polls=(read,), final=True)]), told


def test_an_end_that_comes_late_tears_the_next_transaction_without_kproxy_and_not_with_it(stage: Stage) -> None:
    """KAFKA-17754."""
    direct = Stage(stage.kafka, stage.kproxy, f"{stage.name}-direct")
    with ClusterClient(stage.kafka.bootstrap) as client:
        client.create_topic(direct.name, 1)
    found, told = _held_end(direct, ("127.0.0.1", stage.kafka.ports[0]))
    print(f"direct: {found[0].kind.title}: {found[0].detail}")
    assert [anomaly.kind for anomaly in found] == [AnomalyKind.ABORTED_READ]
    assert told == ErrorCode.INVALID_TXN_STATE
    assert _held_end(stage, ("127.0.0.1", stage.kproxy.ports[0])) == ([], 0)


def test_what_is_late_of_the_last_transaction_is_refused_and_what_is_repeated_is_answered(stage: Stage) -> None:
    with RawConnection("127.0.0.1", stage.kproxy.ports[0]) as connection:
        client = Client(stage.name, connection)
        assert client.initialize() == 0
        client.transaction("1")
        assert client.end(committed=True) == 0  # the response was lost
        assert client.end(committed=False) == ErrorCode.INVALID_TXN_STATE
        assert client.write("late") == ErrorCode.INVALID_TXN_STATE
        assert client.add() == 0
        client.sequence = 0
        assert client.write("late") == ErrorCode.INVALID_TXN_STATE  # its sequence is of the transaction before
        client.sequence = 1
        assert client.write("2") == 0
        client.sequence = 7
        assert client.write("late") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        client.sequence = 2
        assert client.end(committed=True) == 0
        before, client.sequence = client.identity, 0
        assert client.initialize() == 0  # as it does after an abort (KIP-360)
        assert client.identity > before
        client.transaction("3")
        old = Client(stage.name, connection, before)
        assert old.add() == ErrorCode.PRODUCER_FENCED
        assert old.initialize() == 0  # a repeat of what was answered changes nothing, as at Kafka
        assert old.identity == client.identity
        client.transaction("4")
    assert stage.values() == ["1", "2", "3", "4"]


def test_librdkafka_continues_after_each_restart_of_kproxy(stage: Stage) -> None:
    """Killed between transactions: nothing is noticed. Killed within one: it can be aborted and tried again."""
    options = {"bootstrap.servers": stage.kproxy.bootstrap, "transactional.id": stage.name, "log_level": 0}
    producer, expected = Producer(options), []
    producer.init_transactions(PATIENCE_S)

    def write(*values: str) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(stage.name, value)
            assert producer.flush(PATIENCE_S) == 0

    for number in range(2):
        write(f"{number}a", f"{number}b")
        producer.commit_transaction(PATIENCE_S)
        stage.kproxy.kill()
        stage.kproxy.__enter__()
        write(f"{number}c")
        producer.commit_transaction(PATIENCE_S)
        write("no")
        stage.kproxy.kill()
        stage.kproxy.__enter__()
        if number:
            producer.produce(stage.name, "no")
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(PATIENCE_S)
        error = raised.value.args[0]
        assert (error.txn_requires_abort(), error.fatal()) == (True, False), error
        producer.abort_transaction(PATIENCE_S)
        expected += [f"{number}{part}" for part in "abc"]
    assert stage.values() == expected


def test_a_newer_producer_is_not_disturbed_by_a_client_of_a_restarted_kproxy(stage: Stage) -> None:
    with RawConnection("127.0.0.1", stage.kproxy.ports[0]) as connection:
        client = Client(stage.name, connection)
        assert client.initialize() == 0
        client.transaction("1")
    stage.kproxy.kill()
    with RawConnection("127.0.0.1", stage.kafka.ports[0]) as direct:
        new = Client(stage.name, direct)
        assert new.initialize() == 0
        assert [new.add(), new.write("2")] == [0, 0]
        stage.kproxy.__enter__()
        with RawConnection("127.0.0.1", stage.kproxy.ports[0]) as connection:
            client.connection = connection
            fenced = ErrorCode.PRODUCER_FENCED
            assert [client.end(committed=True), client.initialize()] == [fenced] * 2
        assert new.end(committed=True) == 0
    assert stage.values() == ["1", "2"]
