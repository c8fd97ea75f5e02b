"""Questions to a coordinator, repeated while it starts: a real broker creates its topic when first asked."""

from typing import Final

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.support.patience import repeat_while

GROUP: Final = 0
TRANSACTION: Final = 1
STARTING: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def find_coordinator(client: ClusterClient, key: str, key_type: int) -> FindCoordinatorResponse:
    """The coordinator of a group or transactional id, once there is one."""
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    return repeat_while(_is_starting, lambda: client.any_broker().call(request, 2, FindCoordinatorResponse))


def init_transactional_id(
    client: ClusterClient, name: str, version: int = 4, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdResponse:
    """InitProducerId for a transactional id on a one-broker cluster, once its coordinator has loaded."""
    find_coordinator(client, name, TRANSACTION)
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
    )
    return repeat_while(_is_starting, lambda: client.any_broker().call(request, version, InitProducerIdResponse))


def _is_starting(answer: FindCoordinatorResponse | InitProducerIdResponse) -> bool:
    return answer.error_code in STARTING
