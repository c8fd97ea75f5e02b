"""InitProducerId (22): versions 0-5.

Without a transactional id: a fresh producer id, epoch 0. With one: the id's producer with the next epoch, so that the
former owner is fenced. An open transaction is aborted, under an epoch that no client receives, and the response is
CONCURRENT_TRANSACTIONS until that is complete. A caller that names an older producer is refused
(INVALID_PRODUCER_EPOCH, from version 4 PRODUCER_FENCED, KIP-360). Near the end of the epochs the id gets a fresh
producer. A broker whose block of ids is used up answers COORDINATOR_LOAD_IN_PROGRESS until a controller gives it
another.
"""

from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.coordination import coordinator_error, unless_new
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.markers import end_transaction
from kproxy.testing.fake_broker.transactional_ids import LAST_EPOCH, TransactionalId, TxnState

_FENCED_VERSION = 4
_NOBODY = -1


async def handle(call: Call) -> InitProducerIdResponse:
    """Give out a producer id."""
    request: InitProducerIdRequest = call.request
    error = _error(call)
    if error is not ErrorCode.NONE:
        return _refused(error)
    name = request.transactional_id
    owner = call.cluster.transactional_ids.get(name) if name is not None else None
    if owner is not None and owner.epoch < LAST_EPOCH:
        error = _renewed(call, owner)
        if error is not ErrorCode.NONE:
            return _refused(unless_new(error, call.version, _FENCED_VERSION))
        return InitProducerIdResponse(producer_id=owner.producer_id, producer_epoch=owner.epoch)
    producer_id = call.cluster.next_producer_id(call.broker_id)
    if producer_id is None:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if name is not None:
        call.cluster.transactional_ids[name] = TransactionalId(producer_id, 0, request.transaction_timeout_ms)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _renewed(call: Call, owner: TransactionalId) -> ErrorCode:
    """Give an id that there is to the caller, if it is its producer or does not say who it is."""
    request: InitProducerIdRequest = call.request
    if owner.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    named = request.producer_id != _NOBODY
    if named and request.producer_id != owner.producer_id:
        return ErrorCode.PRODUCER_FENCED
    if owner.state is TxnState.ONGOING:
        owner.fence()
        end_transaction(call.cluster, owner)
        return ErrorCode.CONCURRENT_TRANSACTIONS
    owner.timeout_ms = request.transaction_timeout_ms
    return owner.renew(request.producer_epoch if named else None)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


def _error(call: Call) -> ErrorCode:
    request: InitProducerIdRequest = call.request
    name = request.transactional_id
    if name is None:
        return ErrorCode.NONE
    if name == "":
        return ErrorCode.INVALID_REQUEST
    if (error := coordinator_error(call, name)) is not ErrorCode.NONE:
        return error
    if not 0 < request.transaction_timeout_ms <= call.cluster.config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


API = Api(ApiKey.INIT_PRODUCER_ID, (0, 5), handle)
