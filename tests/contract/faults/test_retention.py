"""What the log start and time do to records and to the memory of producers."""

import time

from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import EARLIEST, ClusterClient
from tests.contract.batches import batch
from tests.contract.faults.levers import Levers
from tests.contract.questions import delete_before, mark, producers, send
from tests.support.patience import eventually

PID = 2**61 + 15
DAY_MS = 86_400_000


def _now() -> int:
    return int(time.time() * 1000)


def _ends(client: ClusterClient, topic: str) -> tuple[int, int]:
    return client.offset(topic, 0, EARLIEST), client.offset(topic, 0)


def test_producers_outlive_records_that_were_deleted(tidy_client: ClusterClient, unique: str) -> None:
    tidy_client.create_topic(unique)
    broker = tidy_client.leader(unique, 0)
    for sequence in range(3):
        send(broker, unique, batch(b"v", pid=PID, epoch=0, seq=sequence, first_ms=_now()))
    assert delete_before(broker, unique, -1) == (ErrorCode.NONE, 3)
    assert producers(broker, unique) == {PID: (0, 2)}
    assert send(broker, unique, batch(b"v", pid=PID, epoch=0, seq=2)) == (ErrorCode.NONE, 2)
    gap = batch(b"v", pid=PID, epoch=0, seq=4)
    assert send(broker, unique, gap) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(broker, unique, batch(b"v", pid=PID, epoch=0, seq=3)) == (ErrorCode.NONE, 3)


def test_old_records_go_and_their_producers_stay(eager: Levers, tidy_client: ClusterClient, unique: str) -> None:
    tidy_client.create_topic(unique, config={"retention.ms": "60000"})
    broker = tidy_client.leader(unique, 0)
    old = batch(b"a", b"b", pid=PID, epoch=0, seq=0, first_ms=_now() - 600_000)
    assert send(broker, unique, old) == (ErrorCode.NONE, 0)
    eventually(lambda: _ends(tidy_client, unique) == (2, 2), eager.tidy)
    assert producers(broker, unique) == {PID: (0, 1)}
    assert send(broker, unique, old) == (ErrorCode.NONE, 0)
    behind = tidy_client.fetch(unique, 0, 0).responses[0].partitions[0]
    assert behind.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert send(broker, unique, batch(b"c", pid=PID, epoch=0, seq=2, first_ms=_now())) == (ErrorCode.NONE, 2)
    eager.tidy()
    assert _ends(tidy_client, unique) == (2, 3)


def test_records_beyond_the_size_go(eager: Levers, tidy_client: ClusterClient, unique: str) -> None:
    tidy_client.create_topic(unique, config={"retention.bytes": "0"})
    broker = tidy_client.leader(unique, 0)
    assert send(broker, unique, batch(b"a", b"b", first_ms=_now())) == (ErrorCode.NONE, 0)
    eventually(lambda: _ends(tidy_client, unique) == (2, 2), eager.tidy)


def test_a_producer_expires_by_its_last_timestamp(tidy_client: ClusterClient, unique: str) -> None:
    tidy_client.create_topic(unique)
    broker = tidy_client.leader(unique, 0)
    old = batch(b"v", pid=PID, epoch=3, seq=5, first_ms=_now() - 2 * DAY_MS)
    assert send(broker, unique, old) == (ErrorCode.NONE, 0)
    assert send(broker, unique, batch(b"v", pid=PID + 1, epoch=0, seq=0, first_ms=_now())) == (ErrorCode.NONE, 1)
    assert mark(broker, unique, PID + 2, 4) is ErrorCode.NONE
    eventually(lambda: producers(broker, unique) == {PID + 1: (0, 0), PID + 2: (4, -1)})
    assert send(broker, unique, batch(b"v", pid=PID, epoch=2, seq=5, first_ms=_now())) == (ErrorCode.NONE, 3)


def test_after_a_crash_only_the_last_batch_of_a_producer_is_known(
    eager: Levers, tidy_client: ClusterClient, unique: str
) -> None:
    tidy_client.create_topic(unique)
    sent = [batch(b"v", pid=PID, epoch=0, seq=sequence, first_ms=_now()) for sequence in range(3)]
    for offset, data in enumerate(sent):
        assert send(tidy_client.leader(unique, 0), unique, data) == (ErrorCode.NONE, offset)
    eager.crash()
    eventually(lambda: send(tidy_client.leader(unique, 0), unique, sent[2]) == (ErrorCode.NONE, 2))
    for data in sent[:2]:
        lost = send(tidy_client.leader(unique, 0), unique, data)
        assert lost == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_after_a_crash_an_empty_log_knows_no_producers(eager: Levers, tidy_client: ClusterClient, unique: str) -> None:
    """While records follow in the log, a snapshot of the producers may be there and survive: seen both ways."""
    tidy_client.create_topic(unique, config={"retention.ms": "60000"})
    old = batch(b"a", pid=PID, epoch=0, seq=0, first_ms=_now() - 600_000)
    assert send(tidy_client.leader(unique, 0), unique, old) == (ErrorCode.NONE, 0)
    eventually(lambda: _ends(tidy_client, unique) == (1, 1), eager.tidy)
    assert producers(tidy_client.leader(unique, 0), unique) == {PID: (0, 0)}
    eager.crash()
    tidy_client.wait_served(unique, 0)
    eventually(lambda: _ends(tidy_client, unique) == (1, 1))
    assert producers(tidy_client.leader(unique, 0), unique) == {}
    assert send(tidy_client.leader(unique, 0), unique, old) == (ErrorCode.NONE, 1)
