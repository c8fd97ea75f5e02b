import time
from typing import Any

import pytest

from kproxy.codec._generated.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseReplicaState,
    DescribeQuorumResponseTopicData,
)
from kproxy.codec.messages import ApiKey
from kproxy.codec.version_choice import VersionRange, choose_version
from kproxy.doctor.examination import CHECKS, look, worst
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Level
from kproxy.doctor.gather import clock_skew
from kproxy.testing.fake_broker import Close
from tests.doctor.patients import examined, fake, make_config
from tests.doctor.test_topic_checks import make_own


async def test_a_cluster_that_is_well() -> None:
    async with fake() as cluster:
        make_own(cluster)
        cluster.cluster.create_topic("orders", 3, 3)
        found = await examined(cluster)
    found.open_files = (-1, -1)
    told = look(found)
    assert {row.check for row in told} == {check.name for check in CHECKS}
    assert worst(told) is Level.OK, told


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.API_VERSIONS,
    ],
)
async def test_a_question_that_breaks_the_connection_leaves_the_others(key: ApiKey) -> None:
    async with fake() as cluster:
        make_own(cluster)
        cluster.cluster.control(key, lambda call: Close())
        found = await examined(cluster)
    told = look(found)
    assert {row.check for row in told} == {check.name for check in CHECKS}
    assert bool(found.topics) == (key not in (ApiKey.METADATA, ApiKey.API_VERSIONS))
    assert (found.producer_id_error == 0) == (key not in (ApiKey.INIT_PRODUCER_ID, ApiKey.API_VERSIONS))


def test_every_check_says_something_when_nothing_was_found() -> None:
    told = look(Examined(make_config()))
    assert {row.check for row in told} == {check.name for check in CHECKS}


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
