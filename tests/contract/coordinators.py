"""Questions to a coordinator, repeated while it starts: a real broker creates its topic when first asked."""

import time
from typing import Final

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient

GROUP: Final = 0
TRANSACTION: Final = 1
STARTING: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_PATIENCE_S: Final = 20.0


def find_coordinator(client: ClusterClient, key: str, key_type: int) -> FindCoordinatorResponse:
    """The coordinator of a group or transactional id, once there is one."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        answer = client.any_broker().call(request, 2, FindCoordinatorResponse)
        if answer.error_code not in STARTING or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def init_transactional_id(
    client: ClusterClient, name: str, version: int = 4, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdResponse:
    """InitProducerId for a transactional id on a one-broker cluster, once its coordinator has loaded."""
    find_coordinator(client, name, TRANSACTION)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
        )
        answer = client.any_broker().call(request, version, InitProducerIdResponse)
        if answer.error_code not in STARTING or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)
