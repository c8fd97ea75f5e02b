"""The leader check of readers (KIP-320)."""

import pytest

from kproxy.codec._generated.fetch import FetchRequest
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.epochs import check_leader
from tests.testing.fake_broker.calls import TOPIC, call_to, two_brokers


@pytest.mark.parametrize(
    ("broker_id", "epoch", "error"),
    [
        (2, 1, ErrorCode.NONE),
        (2, -1, ErrorCode.NONE),
        (2, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 0, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_the_epoch_is_judged_before_the_leadership(broker_id: int, epoch: int, error: ErrorCode) -> None:
    cluster = two_brokers()
    cluster.move_leader(TOPIC, 0, 2)
    call = call_to(cluster, broker_id, FetchRequest())
    assert check_leader(call, cluster.topics[TOPIC].partitions[0], epoch) is error
