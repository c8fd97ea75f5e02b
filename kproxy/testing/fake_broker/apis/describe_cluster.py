"""DescribeCluster (60): versions 0-2. Brokers only; a question for controllers (1 and later) is refused."""

from kproxy.codec._generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseDescribeClusterBroker,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.fake_cluster import CLUSTER_ID

_BROKERS = 1


async def handle(call: Call) -> DescribeClusterResponse:
    """List the brokers; those that are down only when version 2 asks for fenced ones."""
    request: DescribeClusterRequest = call.request
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, endpoint_type=request.endpoint_type, cluster_id=CLUSTER_ID
        )
    shown = [b for b in call.cluster.brokers.values() if b.listed or request.include_fenced_brokers]
    return DescribeClusterResponse(
        cluster_id=CLUSTER_ID,
        controller_id=next((broker.node_id for broker in shown if broker.listed), -1),
        brokers=[
            DescribeClusterResponseDescribeClusterBroker(
                broker_id=b.node_id, host=b.host, port=b.port, is_fenced=not b.listed
            )
            for b in shown
        ],
    )


API = Api(ApiKey.DESCRIBE_CLUSTER, (0, 2), handle)
