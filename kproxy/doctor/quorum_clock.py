"""The clock of the cluster's controller: DescribeQuorum returns it (KIP-836): a leader has just caught up with itself.

No other question that changes nothing is answered with a broker's time.
"""

import time
from typing import Final

from kproxy.codec._generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from kproxy.codec.version_choice import NoCommonVersion
from kproxy.doctor.examined import ClockSkew
from kproxy.net.brokers.broker_client import BrokerClient

_TOPIC: Final = "__cluster_metadata"
#: The first version with timestamps.
_TIMESTAMPS: Final = 1


async def clock_skew(client: BrokerClient) -> ClockSkew | None:
    """How far the controller's clock is ahead; None if the brokers do not report it. OSError, RemoteProtocolError."""
    partitions = [DescribeQuorumRequestPartitionData(partition_index=0)]
    request = DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name=_TOPIC, partitions=partitions)])
    asked = time.time()
    try:
        response = await client.call(request, DescribeQuorumResponse, (_TIMESTAMPS, _TIMESTAMPS))
    except NoCommonVersion:
        return None
    answered = time.time()
    leader_ms = _leaders_time(response)
    if leader_ms is None:
        return None
    middle_ms = int((asked + answered) * 500)
    return ClockSkew(leader_ms - middle_ms, int((answered - asked) * 500) + 1)


def _leaders_time(response: DescribeQuorumResponse) -> int | None:
    for topic in response.topics:
        for partition in topic.partitions:
            for voter in partition.current_voters:
                if voter.replica_id == partition.leader_id and voter.last_caught_up_timestamp > 0:
                    return voter.last_caught_up_timestamp
    return None
