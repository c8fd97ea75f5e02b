"""EndTxn (26): versions 0-5. From 5 on the producer's epoch rises with each end (KIP-890).

After the last epoch the next transaction has a fresh producer id. Where no controller gives a block of them the answer
is COORDINATOR_LOAD_IN_PROGRESS, and nothing is decided.
"""

from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.coordination import coordinator_error, unless_new
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.markers import end_transaction
from kproxy.testing.fake_broker.transactional_ids import LAST_EPOCH

_FENCED_VERSION = 2
_RISING_VERSION = 5
_NONE = -1


async def handle(call: Call) -> EndTxnResponse:
    """Commit or abort; the response does not wait for the markers."""
    request: EndTxnRequest = call.request
    error = coordinator_error(call, request.transactional_id)
    owner = call.cluster.transactional_ids.get(request.transactional_id)
    if owner is None or error is not ErrorCode.NONE:
        return EndTxnResponse(error_code=error or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    rises = call.version >= _RISING_VERSION
    fresh = call.cluster.next_producer_id(call.broker_id) if rises and owner.epoch >= LAST_EPOCH else _NONE
    if fresh is None:
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    end = owner.end_and_raise if rises else owner.end
    error = end(request.producer_id, request.producer_epoch, request.committed)
    if error is not ErrorCode.NONE:
        return EndTxnResponse(error_code=unless_new(error, call.version, _FENCED_VERSION))
    if owner.prepared:
        owner.next_id = fresh
    following = owner.following
    end_transaction(call.cluster, owner)
    return EndTxnResponse(producer_id=following[0], producer_epoch=following[1]) if rises else EndTxnResponse()


API = Api(ApiKey.END_TXN, (0, 5), handle)
