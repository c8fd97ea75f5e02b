"""InitProducerId (22): versions 0-5.

Without a transactional id: a fresh producer id, epoch 0. With one: the id's producer, one epoch on, so that the
former owner is fenced and its open transaction aborted; a caller that names an older producer is told so
(INVALID_PRODUCER_EPOCH, from version 4 PRODUCER_FENCED, KIP-360). Near the end of the epochs the id gets a fresh
producer. A broker whose block of ids is used up says COORDINATOR_LOAD_IN_PROGRESS while no controller gives it another.
"""

from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.api import Api, Call
from kproxy.testing.fake_broker.cluster import TransactionalId
from kproxy.testing.fake_broker.coordination import end_transaction

_LAST_EPOCH = 32_766
_MAX_TIMEOUT_MS = 900_000
_FENCED_VERSION = 4


async def handle(call: Call) -> InitProducerIdResponse:
    """Give out a producer id."""
    request: InitProducerIdRequest = call.request
    error = _error(call)
    if error is not ErrorCode.NONE:
        return _refused(error)
    owner = None
    if request.transactional_id is not None:
        owner = call.cluster.transactional_ids.get(request.transactional_id)
        if owner is not None:
            end_transaction(call, owner, False)
    if owner is None or owner.epoch >= _LAST_EPOCH:
        producer_id = call.cluster.next_producer_id(call.broker_id)
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        owner = TransactionalId(producer_id, -1)
        if request.transactional_id is not None:
            call.cluster.transactional_ids[request.transactional_id] = owner
    owner.epoch += 1
    return InitProducerIdResponse(producer_id=owner.producer_id, producer_epoch=owner.epoch)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


def _error(call: Call) -> ErrorCode:
    request: InitProducerIdRequest = call.request
    name = request.transactional_id
    if name is None:
        return ErrorCode.NONE
    if name == "":
        return ErrorCode.INVALID_REQUEST
    coordinator = call.cluster.coordinator_of(name)
    if coordinator is None or coordinator.node_id != call.broker_id:
        return ErrorCode.NOT_COORDINATOR
    if not 0 < request.transaction_timeout_ms <= _MAX_TIMEOUT_MS:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    owner = call.cluster.transactional_ids.get(name)
    claimed = (request.producer_id, request.producer_epoch)
    if owner is not None and request.producer_id != -1 and claimed != (owner.producer_id, owner.epoch):
        return ErrorCode.PRODUCER_FENCED if call.version >= _FENCED_VERSION else ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.NONE


API = Api(ApiKey.INIT_PRODUCER_ID, (0, 5), handle)
