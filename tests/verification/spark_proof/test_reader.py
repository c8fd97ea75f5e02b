"""The reader beside the job, on the fake broker."""

import time

import pytest
from confluent_kafka import Producer

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.cluster_client import ClusterClient
from tests.spark.fake_cluster import fake_cluster
from verification.spark_proof.reader import Beside, Reader, check_decided, read_to_end
from verification.spark_proof.verdict import Seen, TopicPartition

_PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]
_PATIENCE = 20.0


def _write(client: ClusterClient, partition: int, *numbers: int) -> None:
    records = [Record(delta, 1000, b"%d" % number, b"v") for delta, number in enumerate(numbers)]
    assert client.produce("t", partition, build_batch(records)).error_code == 0


def test_a_reader_keeps_what_it_saw_and_when() -> None:
    with fake_cluster() as fake, fake.client() as client:
        client.create_topic("t", 2)
        reader = Reader(fake.bootstrap, _PLACES)
        _write(client, 0, 5, 6)
        reader.look()
        _write(client, 0, 7)
        _write(client, 1, 8)
        reader.look()
        assert {place.partition: list(row) for place, row in reader.numbers.items()} == {0: [5, 6, 7], 1: [8]}
        assert reader.seen == [Seen(_PLACES[0], 2), Seen(_PLACES[1], 0), Seen(_PLACES[0], 3), Seen(_PLACES[1], 1)]
        assert read_to_end(fake.bootstrap, _PLACES, committed=False).numbers == reader.numbers


def test_a_reader_beside_continues_when_there_is_no_answer() -> None:
    with fake_cluster() as fake, fake.client() as client:
        with Beside(Reader(fake.bootstrap, _PLACES)) as reader:  # of a topic that is not there yet
            client.create_topic("t", 2)
            _write(client, 0, 5)
            deadline = time.monotonic() + _PATIENCE
            while not reader.numbers[_PLACES[0]] and time.monotonic() < deadline:
                time.sleep(0.01)
        assert list(reader.numbers[_PLACES[0]]) == [5]


def test_there_is_no_verdict_while_a_transaction_is_undecided() -> None:
    with fake_cluster() as fake, fake.client() as client:
        client.create_topic("t", 2)
        producer = Producer({"bootstrap.servers": fake.bootstrap, "transactional.id": "open"})
        producer.init_transactions(_PATIENCE)
        producer.begin_transaction()
        producer.produce("t", b"v", b"5", partition=1)
        assert producer.flush(_PATIENCE) == 0
        with pytest.raises(RuntimeError, match="t-1 is undecided from offset 0 to 1"):
            check_decided(fake.bootstrap, _PLACES)
        producer.commit_transaction(_PATIENCE)
        check_decided(fake.bootstrap, _PLACES)
