"""Replicas: the high watermark, too few in sync, and what elections lose.

Measured by hand on 4.3.0, since a test cannot time it: NOT_ENOUGH_REPLICAS_AFTER_APPEND did not come. A batch that was
appended with three of three in sync, ``min.insync.replicas`` 3, was answered REQUEST_TIMED_OUT after all of its
``timeout_ms`` (8 s) although a replica had gone after 2.7 s: the high watermark does not move while too few are in
sync.
"""

import threading
import time

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
)
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.batches import batch
from tests.contract.faults.levers import Levers
from tests.contract.questions import connect, create_on, delete_before, in_sync, mark, producers, send
from tests.support.patience import PATIENCE_S, eventually

PID = 2**61 + 5
OTHER = 2**61 + 6
NOW_MS = int(time.time() * 1000)
"""Records of today: a broker that restarts does not take expired producers over."""


def _sent(sequence: int, pid: int = PID, epoch: int = 0, first_ms: int = NOW_MS) -> bytearray:
    return batch(b"v", pid=pid, epoch=epoch, seq=sequence, first_ms=first_ms + sequence)


def test_a_replica_that_has_stopped_holds_the_high_watermark(
    replicas: Levers, cluster: ClusterClient, unique: str
) -> None:
    create_on(cluster, unique, 1, 2)
    leader = connect(cluster, 1)
    assert send(leader, unique, _sent(0)) == (ErrorCode.NONE, 0)
    with connect(cluster, 2) as follower:
        assert producers(follower, unique) == {PID: (0, 0)}
    replicas.pause(2)
    try:
        assert send(leader, unique, _sent(1), acks=1) == (ErrorCode.NONE, 1)
        assert send(leader, unique, _sent(2), timeout_ms=300) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        assert send(leader, unique, _sent(2), timeout_ms=300) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        assert send(leader, unique, _sent(2), acks=1) == (ErrorCode.NONE, 2)
        assert producers(leader, unique) == {PID: (0, 2)}
        assert (cluster.offset(unique, 0), cluster.offset(unique, 0, NOW_MS + 1)) == (1, -1)
        for offset, error in ((0, 0), (1, 0), (2, 0), (3, 0), (4, ErrorCode.OFFSET_OUT_OF_RANGE)):
            answer = cluster.fetch(unique, 0, offset).responses[0].partitions[0]
            assert (answer.error_code, bool(answer.records)) == (error, offset == 0)
            assert answer.high_watermark == (-1 if error else 1)
        assert delete_before(leader, unique, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    finally:
        replicas.resume(2)
    eventually(lambda: cluster.offset(unique, 0) == 3)
    leader.close()


def test_with_too_few_in_sync_acks_all_and_markers_are_refused(
    replicas: Levers, cluster: ClusterClient, unique: str
) -> None:
    enough = f"{unique}-enough"
    create_on(cluster, unique, 1, 2, 3, config={"min.insync.replicas": "3"})
    create_on(cluster, enough, 1, 2, 3)
    leader, waiting = connect(cluster, 1), connect(cluster, 1)
    answers: list[tuple[ErrorCode, int]] = []
    for topic in (unique, enough):
        assert send(leader, topic, _sent(0)) == (ErrorCode.NONE, 0)
    replicas.pause(2)
    try:
        thread = threading.Thread(target=lambda: answers.append(send(waiting, enough, _sent(1))))
        thread.start()
        replicas.out_of_sync(2)
        eventually(lambda: in_sync(cluster, unique) == in_sync(cluster, enough) == [1, 3])
        thread.join(PATIENCE_S)
        assert answers == [(ErrorCode.NONE, 1)]
        assert cluster.offset(enough, 0) == 2
        for data in (_sent(1), _sent(0)):
            assert send(leader, unique, data) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert mark(leader, unique, OTHER, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert producers(leader, unique) == {PID: (0, 0)}
        assert send(leader, unique, _sent(1), acks=1) == (ErrorCode.NONE, 1)
        assert cluster.offset(unique, 0) == 1
    finally:
        replicas.resume(2)
    eventually(lambda: in_sync(cluster, unique) == [1, 2, 3] and cluster.offset(unique, 0) == 2)
    assert mark(leader, unique, OTHER, 1) is ErrorCode.NONE
    for connection in (leader, waiting):
        connection.close()


def test_fewer_replicas_than_asked_for_need_only_be_all_in_sync(cluster: ClusterClient, unique: str) -> None:
    create_on(cluster, unique, 3, config={"min.insync.replicas": "3"})
    assert cluster.produce(unique, 0, _sent(0)).error_code == ErrorCode.NONE


def test_a_clean_election_loses_what_only_the_leader_had(replicas: Levers, cluster: ClusterClient, unique: str) -> None:
    create_on(cluster, unique, 1, 2, config={"min.insync.replicas": "1"})
    with connect(cluster, 1) as leader:
        for sequence in range(4):
            assert send(leader, unique, _sent(sequence)) == (ErrorCode.NONE, sequence)
        replicas.pause(2)
        # five in all, which a broker remembers: the paused one may have received a response while the last was in
        # flight
        assert send(leader, unique, _sent(4), acks=1) == (ErrorCode.NONE, 4)
    replicas.kill(1)
    replicas.resume(2)
    try:
        eventually(lambda: cluster.metadata(unique).topics[0].partitions[0].leader_id == 2)
        with connect(cluster, 2) as successor:
            eventually(lambda: send(successor, unique, _sent(3)) == (ErrorCode.NONE, 3))
            for sequence in range(5):
                assert send(successor, unique, _sent(sequence)) == (ErrorCode.NONE, sequence)
            assert producers(successor, unique) == {PID: (0, 4)}
            assert cluster.metadata(unique).topics[0].partitions[0].leader_epoch == 1
            assert cluster.offset(unique, 0) == 5
    finally:
        replicas.start(1)
    eventually(lambda: in_sync(cluster, unique) == [1, 2])


def test_a_reader_hears_where_the_log_parts_from_what_it_read(
    replicas: Levers, cluster: ClusterClient, unique: str
) -> None:
    create_on(cluster, unique, 1, 2, config={"min.insync.replicas": "1"})
    with connect(cluster, 1) as leader:
        for sequence in range(3):
            assert send(leader, unique, _sent(sequence)) == (ErrorCode.NONE, sequence)
    replicas.kill(1)
    try:
        eventually(lambda: cluster.metadata(unique).topics[0].partitions[0].leader_id == 2)
        with connect(cluster, 2) as successor:
            eventually(lambda: send(successor, unique, _sent(3)) == (ErrorCode.NONE, 3))
            assert send(successor, unique, _sent(4)) == (ErrorCode.NONE, 4)

            def read(offset: int, epoch: int) -> tuple[int, int, int, bool]:
                """Error code, diverging epoch and its end, and whether there are records."""
                part = FetchRequestFetchPartition(
                    partition=0, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20
                )
                wanted = FetchRequestFetchTopic(topic=unique, partitions=[part])
                request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[wanted])
                row = successor.call(request, 12, FetchResponse).responses[0].partitions[0]
                return row.error_code, row.diverging_epoch.epoch, row.diverging_epoch.end_offset, bool(row.records)

            assert cluster.metadata(unique).topics[0].partitions[0].leader_epoch == 1
            for offset, epoch in ((3, 0), (2, 0), (4, 1), (4, -1), (0, 1)):
                assert read(offset, epoch) == (ErrorCode.NONE, -1, -1, True)
            assert read(5, 1) == (ErrorCode.NONE, -1, -1, False)
            for offset in (4, 5, 9):
                assert read(offset, 0) == (ErrorCode.NONE, 0, 3, False)
            assert read(9, 1) == (ErrorCode.NONE, 1, 5, False)
            for offset, epoch in ((5, 2), (3, 2), (9, -1)):
                assert read(offset, epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, False)
    finally:
        replicas.start(1)
    eventually(lambda: in_sync(cluster, unique) == [1, 2])


def test_without_a_controller_and_then_an_unclean_election(
    replicas: Levers, cluster: ClusterClient, unique: str
) -> None:
    """CreateTopics, DeleteTopics, CreatePartitions: REQUEST_TIMED_OUT after 60.02 s, whatever timeout_ms (by hand)."""
    old = _sent(0, OTHER, first_ms=NOW_MS - 2 * 86_400_000)
    create_on(cluster, unique, 1, 2, config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
    with connect(cluster, 1) as leader:
        assert send(leader, unique, _sent(0)) == (ErrorCode.NONE, 0)
        assert send(leader, unique, old) == (ErrorCode.NONE, 1)
        replicas.kill(2)
        eventually(lambda: in_sync(cluster, unique) == [1])
        assert send(leader, unique, _sent(1)) == (ErrorCode.NONE, 2)
        assert send(leader, unique, _sent(0, epoch=1)) == (ErrorCode.NONE, 3)
    replicas.controller(False)
    replicas.kill(1)
    try:
        with connect(cluster, 3) as alone:
            metadata = cluster.metadata(unique)
            assert {broker.node_id for broker in metadata.brokers} >= {1, 3}
            assert metadata.topics[0].partitions[0].leader_id == 1
            for _ in range(2):
                request = MetadataRequest(topics=[MetadataRequestTopic(name=f"{unique}-new")])
                missing = alone.call(request, 9, MetadataResponse).topics[0]
                assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            errors = {alone.call(init, 4, InitProducerIdResponse).error_code for _ in range(2_100)}
            assert errors - {ErrorCode.NONE} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    finally:
        replicas.controller(True)
        replicas.start(2)
    eventually(lambda: cluster.metadata(unique).topics[0].partitions[0].leader_id == 2)
    with connect(cluster, 2) as unclean:
        eventually(lambda: send(unclean, unique, _sent(0))[0] is ErrorCode.NONE)
        assert send(unclean, unique, _sent(0)) == (ErrorCode.NONE, 0)
        assert producers(unclean, unique) == {PID: (0, 0)}
        assert cluster.offset(unique, 0) == 2
        assert send(unclean, unique, _sent(1), acks=1) == (ErrorCode.NONE, 2)
        assert send(unclean, unique, old) == (ErrorCode.NONE, 3)
    replicas.start(1)
    eventually(lambda: in_sync(cluster, unique) == [1, 2])
    assert cluster.offset(unique, 0) == 4
