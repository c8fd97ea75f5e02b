"""FindCoordinator (10): versions 0-6. Groups (key type 0) and transactional ids (1); version 4 asks for many at once.

Share groups (2, version 6) are not served: INVALID_REQUEST.
"""

from kproxy.codec._generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call

_BATCH_VERSION = 4


async def handle(call: Call) -> FindCoordinatorResponse:
    """Name the coordinator of each key."""
    request: FindCoordinatorRequest = call.request
    if call.version >= _BATCH_VERSION:
        return FindCoordinatorResponse(coordinators=[_find(call, key) for key in request.coordinator_keys])
    found = _find(call, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(call: Call, key: str) -> FindCoordinatorResponseCoordinator:
    if call.request.key_type not in (0, 1):
        return _none(key, ErrorCode.INVALID_REQUEST)
    broker = call.cluster.coordinator_of(key)
    if broker is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return FindCoordinatorResponseCoordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)


def _none(key: str, error: ErrorCode) -> FindCoordinatorResponseCoordinator:
    return FindCoordinatorResponseCoordinator(key=key, node_id=-1, host="", port=-1, error_code=error)


API = Api(ApiKey.FIND_COORDINATOR, (0, 6), handle)
