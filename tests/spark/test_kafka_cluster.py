from collections.abc import Iterator

import pytest

from kproxy.codec._generated.list_offsets import ListOffsetsResponse
from kproxy.codec._generated.metadata import MetadataResponse, MetadataResponseTopic
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.routing import Address
from kproxy.spark.kafka_cluster import EARLIEST, LATEST, KafkaCluster, TopicPartition
from kproxy.spark.spark_errors import KafkaError
from kproxy.testing.fake_broker import Answer, Close, Edit
from tests.spark.fake_cluster import Fake, fake_cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster(brokers=2) as running:
        with running.client() as client:
            client.create_topic("t", 2, replication=2)
            for _ in range(3):
                client.produce("t", 1, build_batch([Record(0, 1000, None, b"v"), Record(1, 2000, None, b"w")]))
        yield running


def _refuse(error: ErrorCode) -> Edit:
    def change(answer: object) -> None:
        assert isinstance(answer, ListOffsetsResponse)
        for topic in answer.topics:
            for row in topic.partitions:
                row.error_code = error

    return Edit(change)


def test_topics_and_their_partitions(fake: Fake) -> None:
    with fake.cluster() as cluster:
        assert cluster.topics() == {"t": 2}
        assert cluster.partitions(["t", "nothing"]) == {"t": 2}
        assert cluster.partitions([]) == {}


def test_asking_for_a_topic_does_not_make_it(fake: Fake) -> None:
    with fake.cluster() as cluster:
        cluster.partitions(["nothing"])
        assert "nothing" not in cluster.topics()


def test_a_topic_that_may_not_be_read_is_reported(fake: Fake) -> None:
    row = MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name="t")
    fake.on(ApiKey.METADATA, lambda call: Answer(MetadataResponse(topics=[row])))
    with fake.cluster() as cluster, pytest.raises(KafkaError, match=r"topic 't': TOPIC_AUTHORIZATION_FAILED"):
        cluster.partitions(["t"])


def test_offsets_by_place_and_time(fake: Fake) -> None:
    with fake.cluster() as cluster:
        assert cluster.offsets({T0: LATEST, T1: LATEST}) == {T0: 0, T1: 6}
        assert cluster.offsets({T0: EARLIEST, T1: 1500}) == {T0: 0, T1: 1}
        assert cluster.offsets({T0: 0, T1: 2001}) == {T0: None, T1: None}
        assert cluster.offsets({T1: LATEST}, committed=True) == {T1: 6}
        assert cluster.offsets({}) == {}


def test_a_leader_that_moves_is_found_again(fake: Fake) -> None:
    with fake.cluster() as cluster:
        cluster.offsets({T0: LATEST, T1: LATEST})
        leader = fake.do(lambda server: server.cluster.topics["t"].partitions[1].leader)
        fake.do(lambda server: server.cluster.move_leader("t", 1, 3 - leader))
        assert cluster.offsets({T0: LATEST, T1: LATEST}) == {T0: 0, T1: 6}


def test_a_broker_that_ends_is_no_end_of_the_cluster(fake: Fake) -> None:
    with fake.cluster() as cluster:
        cluster.offsets({T0: LATEST, T1: LATEST})
        fake.do(lambda server: server.stop_broker(1))
        assert cluster.offsets({T0: LATEST, T1: LATEST}) == {T0: 0, T1: 6}
        assert cluster.topics() == {"t": 2}


@pytest.mark.parametrize("fault", [_refuse(ErrorCode.LEADER_NOT_AVAILABLE), Close()])
def test_what_passes_is_tried_again(fake: Fake, fault: Edit | Close) -> None:
    fake.on(ApiKey.LIST_OFFSETS, lambda call: fault, times=2)
    with fake.cluster() as cluster:
        assert cluster.offsets({T0: LATEST, T1: LATEST}) == {T0: 0, T1: 6}


def test_patience_ends(fake: Fake) -> None:
    fake.on(ApiKey.LIST_OFFSETS, lambda call: _refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with fake.cluster(patience_s=0.1) as cluster, pytest.raises(KafkaError, match=r"t-1.*NOT_LEADER.*for 0\.1 s"):
        cluster.offsets({T1: LATEST})


def test_what_does_not_pass_is_reported_at_once(fake: Fake) -> None:
    fake.on(ApiKey.LIST_OFFSETS, lambda call: _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with fake.cluster(patience_s=1e9) as cluster, pytest.raises(KafkaError, match=r"t-1: TOPIC_AUTHORIZATION_FAILED"):
        cluster.offsets({T1: LATEST})


def test_a_partition_that_does_not_exist(fake: Fake) -> None:
    with fake.cluster(patience_s=0.1) as cluster, pytest.raises(KafkaError, match="t-7 does not exist"):
        cluster.offsets({TopicPartition("t", 7): LATEST})


def test_nobody_can_be_reached() -> None:
    with fake_cluster() as ended:
        places = ended.addresses()
    places = [*places, Address("127.0.0.1", 1)]
    nobody = KafkaCluster(places, client_id="c", request_timeout_s=5, patience_s=0.1)
    with nobody as cluster, pytest.raises(KafkaError, match=rf"{places[0]}.*{places[1]}"):
        cluster.topics()


def test_an_address_that_never_answered_is_not_waited_for_as_long_as_one_that_did(fake: Fake) -> None:
    with fake_cluster() as ended:
        places = ended.addresses()
    wanted = {"client_id": "c", "request_timeout_s": 5.0, "patience_s": 1e9, "first_patience_s": 0.1}
    with KafkaCluster(places, **wanted) as nobody, pytest.raises(KafkaError, match=r"tried for 0\.1 s"):
        nobody.topics()
    fake.on(ApiKey.LIST_OFFSETS, lambda call: _refuse(ErrorCode.LEADER_NOT_AVAILABLE), times=4)
    with KafkaCluster(fake.addresses(), **wanted) as cluster:
        assert cluster.offsets({T0: LATEST}) == {T0: 0}


def test_offsets_of_a_group(fake: Fake) -> None:
    with fake.client() as client:
        part = OffsetCommitRequestPartition(partition_index=1, committed_offset=4)
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[part])])
        places = fake.addresses()
        with fake.cluster() as cluster:
            assert cluster.group_offsets("g") == {}
        answers = [
            client._connect(place).call(request, 7, OffsetCommitResponse).topics[0].partitions[0].error_code
            for place in places
        ]
    assert 0 in answers
    with fake.cluster() as cluster:
        assert cluster.group_offsets("g") == {T1: 4}
