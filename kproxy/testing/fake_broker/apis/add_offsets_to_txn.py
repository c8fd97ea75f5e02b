"""AddOffsetsToTxn (25): versions 0-4. A group's offsets join the transaction of a transactional id."""

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.coordination import transaction_error
from kproxy.testing.fake_broker.fake_api import Api, Call

_FENCED_VERSION = 2


async def handle(call: Call) -> AddOffsetsToTxnResponse:
    """Note the group."""
    request: AddOffsetsToTxnRequest = call.request
    error = transaction_error(call, _FENCED_VERSION)
    if error is ErrorCode.NONE:
        owner = call.cluster.transactional_ids[request.transactional_id]
        error = owner.join(call.now, groups=[request.group_id])
    return AddOffsetsToTxnResponse(error_code=error)


API = Api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), handle)
