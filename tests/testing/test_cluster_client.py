"""The blocking test client, against a real broker."""

import pytest
from confluent_kafka import Producer

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec._generated.produce import ProduceRequest
from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import EARLIEST, ClusterClient, RawConnection
from kproxy.testing.kafka import RealKafka

pytestmark = pytest.mark.kafka


def _values(data: bytes) -> list[bytes | None]:
    return [record.value for record in iter_records(data, max_decompressed_bytes=1 << 20)]


def test_what_is_produced_can_be_read_back(kafka: RealKafka) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic("client-read-back", partitions=2, config={"retention.ms": "-1"})
        for number in range(3):
            answer = client.produce(
                "client-read-back", 1, build_batch([Record(0, 1000 + number, None, b"%d" % number, ())])
            )
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
        assert client.offset("client-read-back", 1) == 3
        assert client.offset("client-read-back", 1, EARLIEST) == 0
        assert client.offset("client-read-back", 1, 1001) == 1
        assert _values(client.read_all("client-read-back", 1)) == [b"0", b"1", b"2"]
        assert client.read_all("client-read-back", 0) == b""
        client.delete_topic("client-read-back")


def test_what_was_aborted_is_left_out_where_only_committed_data_is_read(kafka: RealKafka) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic("client-committed")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "client-committed"})
        producer.init_transactions(30)
        for value, ends in (("a", producer.commit_transaction), ("b", producer.abort_transaction)) * 2:
            producer.begin_transaction()
            producer.produce("client-committed", value, partition=0)
            producer.flush()
            ends(30)
        assert _values(client.read_all("client-committed", isolation_level=1)) == [b"a", b"a"]
        assert _values(client.read_all("client-committed")) == [b"a", b"b", b"a", b"b"]


def test_a_refusal_names_kafkas_error(kafka: RealKafka) -> None:
    with ClusterClient(kafka.bootstrap) as client, pytest.raises(RuntimeError, match="INVALID_REPLICATION_FACTOR"):
        client.create_topic("client-refused", replication=5)


def test_a_version_that_is_not_served_ends_the_connection_and_a_new_one_is_made(kafka: RealKafka) -> None:
    with RawConnection("127.0.0.1", kafka.ports[0]) as connection, pytest.raises(ConnectionError):
        connection.call(ProduceRequest(acks=1), 2)
    with ClusterClient(kafka.bootstrap) as client:
        with pytest.raises(ConnectionError):
            client.any_broker().call(ProduceRequest(acks=1), 2)
        assert client.metadata().brokers


def test_any_message_goes_over_a_raw_connection(kafka: RealKafka) -> None:
    with RawConnection("127.0.0.1", kafka.ports[0]) as connection:
        for version in (1, 8, 12):
            answer = connection.call(MetadataRequest(topics=None), version, MetadataResponse)
            assert [broker.port for broker in answer.brokers] == list(kafka.ports)
