"""EndTxn (26): versions 0-5. From 5 on the producer's epoch rises with each end (KIP-890)."""

from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.api import Api, Call
from kproxy.testing.fake_broker.coordination import end_transaction, transaction_error

_FENCED_VERSION = 2
_RISING_VERSION = 5


async def handle(call: Call) -> EndTxnResponse:
    """Commit or abort."""
    request: EndTxnRequest = call.request
    error = transaction_error(call, _FENCED_VERSION)
    if error is not ErrorCode.NONE:
        return EndTxnResponse(error_code=error)
    owner = call.cluster.transactional_ids[request.transactional_id]
    end_transaction(call, owner, request.committed)
    if call.version < _RISING_VERSION:
        return EndTxnResponse()
    owner.epoch += 1
    return EndTxnResponse(producer_id=owner.producer_id, producer_epoch=owner.epoch)


API = Api(ApiKey.END_TXN, (0, 5), handle)
