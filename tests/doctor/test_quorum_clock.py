import time
from typing import Any

from kproxy.codec._generated.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseReplicaState,
    DescribeQuorumResponseTopicData,
)
from kproxy.codec.messages import ApiKey
from kproxy.codec.version_choice import VersionRange, choose_version
from kproxy.doctor.quorum_clock import clock_skew


class Controller:
    """A client of a quorum of two whose leader's clock is ahead."""

    def __init__(self, ahead_ms: int, newest: int = 2) -> None:
        self.ahead_ms = ahead_ms
        self.versions = {ApiKey.DESCRIBE_QUORUM: (0, newest)}

    async def call(self, request: Any, answer: Any, wanted: VersionRange) -> DescribeQuorumResponse:
        assert choose_version(self.versions, request, wanted) == 1
        now = int(time.time() * 1000)
        voters = [
            DescribeQuorumResponseReplicaState(replica_id=1, last_caught_up_timestamp=now - 7_000_000),
            DescribeQuorumResponseReplicaState(replica_id=2, last_caught_up_timestamp=now + self.ahead_ms),
        ]
        partition = DescribeQuorumResponsePartitionData(leader_id=2, current_voters=voters)
        return DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData(partitions=[partition])])


async def test_the_leaders_clock_counts() -> None:
    skew = await clock_skew(Controller(90_000))  # type: ignore[arg-type]
    assert skew is not None
    assert abs(skew.ahead_ms - 90_000) <= skew.uncertain_ms + 1


async def test_who_tells_no_time() -> None:
    assert await clock_skew(Controller(0, newest=0)) is None  # type: ignore[arg-type]
