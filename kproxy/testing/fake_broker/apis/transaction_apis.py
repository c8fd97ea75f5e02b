"""Producer ids and transactions: what producers and brokers ask (KIP-98, KIP-890)."""

from functools import partial

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult,
)
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseWritableTxnMarkerPartitionResult,
    WriteTxnMarkersResponseWritableTxnMarkerResult,
    WriteTxnMarkersResponseWritableTxnMarkerTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.testing.fake_broker.coordination import coordinator_error, unless_new
from kproxy.testing.fake_broker.fake_api import Call, api
from kproxy.testing.fake_broker.markers import end_transaction
from kproxy.testing.fake_broker.partition import Partition
from kproxy.testing.fake_broker.replicated import Awaited, until_replicated
from kproxy.testing.fake_broker.transactional_ids import LAST_EPOCH, TransactionalId, TxnState

_MANY_KEYS_VERSION = 4
_FENCED_INIT_VERSION = 4
_NOBODY = -1
_FENCED_VERSION = 2
_MANY_VERSION = 4
_RISING_VERSION = 5
_NO_ID = -1


@api(ApiKey.FIND_COORDINATOR, (0, 6))
async def find_coordinator(call: Call) -> FindCoordinatorResponse:
    """Groups (key type 0) and transactional ids (1); version 4 asks for many at once.

    Share groups (2, version 6) are not served: INVALID_REQUEST.
    """
    request: FindCoordinatorRequest = call.request
    if call.version >= _MANY_KEYS_VERSION:
        return FindCoordinatorResponse(coordinators=[_coordinator(call, key) for key in request.coordinator_keys])
    found = _coordinator(call, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(call: Call, key: str) -> FindCoordinatorResponseCoordinator:
    if call.request.key_type not in (0, 1):
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST)
    broker = call.cluster.coordinator_of(key)
    if broker is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return FindCoordinatorResponseCoordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)


def _no_coordinator(key: str, error: ErrorCode) -> FindCoordinatorResponseCoordinator:
    return FindCoordinatorResponseCoordinator(key=key, node_id=-1, host="", port=-1, error_code=error)


@api(ApiKey.INIT_PRODUCER_ID, (0, 5))
async def init_producer_id(call: Call) -> InitProducerIdResponse:
    """Give out a producer id.

    Without a transactional id: a fresh producer id, epoch 0. With one: the id's producer with the next epoch, so that
    the former owner is fenced. An open transaction is aborted, under an epoch that no client receives, and the response
    is CONCURRENT_TRANSACTIONS until that is complete. A caller that names an older producer is refused
    (INVALID_PRODUCER_EPOCH, from version 4 PRODUCER_FENCED, KIP-360). Near the end of the epochs the id gets a fresh
    producer. A broker whose block of ids is used up answers COORDINATOR_LOAD_IN_PROGRESS until a controller gives it
    another.
    """
    request: InitProducerIdRequest = call.request
    error = _init_error(call)
    if error is not ErrorCode.NONE:
        return _refused(error)
    name = request.transactional_id
    owner = call.cluster.transactional_ids.get(name) if name is not None else None
    if owner is not None and owner.epoch < LAST_EPOCH:
        error = _renewed(call, owner)
        if error is not ErrorCode.NONE:
            return _refused(unless_new(error, call.version, _FENCED_INIT_VERSION))
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


def _init_error(call: Call) -> ErrorCode:
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


@api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5))
async def add_partitions_to_txn(call: Call) -> AddPartitionsToTxnResponse:
    """Partitions join the transaction of a transactional id.

    All of them or none: where one is unknown, the others are OPERATION_NOT_ATTEMPTED. From version 4 on brokers ask for
    several transactions, or only whether the partitions have joined (KIP-890).
    """
    request: AddPartitionsToTxnRequest = call.request
    if call.version >= _MANY_VERSION:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResponseAddPartitionsToTxnResult(one.transactional_id, _added(call, one))
                for one in request.transactions
            ]
        )
    one = AddPartitionsToTxnRequestAddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_added(call, one))


def _added(
    call: Call, one: AddPartitionsToTxnRequestAddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult]:
    places = [(topic.name, index) for topic in one.topics for index in topic.partitions]
    errors = dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED)
    unknown = [place for place in places if call.find(*place) is None]
    errors.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if not unknown:
        errors = dict.fromkeys(places, _join(call, one, places))
    return [
        AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(index, errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in one.topics
    ]


def _join(
    call: Call, one: AddPartitionsToTxnRequestAddPartitionsToTxnTransaction, places: list[TopicPartition]
) -> ErrorCode:
    owner = _owner(call, one)
    if isinstance(owner, ErrorCode):
        return owner
    if one.verify_only and not owner.prepared:
        return ErrorCode.NONE if owner.places.issuperset(places) else ErrorCode.TRANSACTION_ABORTABLE
    return owner.join(call.now, places)


@api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4))
async def add_offsets_to_txn(call: Call) -> AddOffsetsToTxnResponse:
    """A group's offsets join the transaction of a transactional id."""
    request: AddOffsetsToTxnRequest = call.request
    owner = _owner(call, request)
    error = owner if isinstance(owner, ErrorCode) else owner.join(call.now, groups=[request.group_id])
    return AddOffsetsToTxnResponse(error_code=error)


def _owner(
    call: Call, asked: AddPartitionsToTxnRequestAddPartitionsToTxnTransaction | AddOffsetsToTxnRequest
) -> TransactionalId | ErrorCode:
    """The transactional id, if the producer that is named may add to its transaction."""
    if (error := coordinator_error(call, asked.transactional_id)) is not ErrorCode.NONE:
        return error
    owner = call.cluster.transactional_ids.get(asked.transactional_id)
    if owner is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    error = unless_new(owner.check(asked.producer_id, asked.producer_epoch), call.version, _FENCED_VERSION)
    return owner if error is ErrorCode.NONE else error


@api(ApiKey.END_TXN, (0, 5))
async def end_txn(call: Call) -> EndTxnResponse:
    """Commit or abort; the response does not wait for the markers.

    From version 5 on the producer's epoch rises with each end (KIP-890). After the last epoch the next transaction has
    a fresh producer id. Where no controller gives a block of them the answer is COORDINATOR_LOAD_IN_PROGRESS, and
    nothing is decided.
    """
    request: EndTxnRequest = call.request
    error = coordinator_error(call, request.transactional_id)
    owner = call.cluster.transactional_ids.get(request.transactional_id)
    if owner is None or error is not ErrorCode.NONE:
        return EndTxnResponse(error_code=error or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    rises = call.version >= _RISING_VERSION
    fresh = call.cluster.next_producer_id(call.broker_id) if rises and owner.epoch >= LAST_EPOCH else _NO_ID
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


@api(ApiKey.WRITE_TXN_MARKERS, (1, 2))
async def write_txn_markers(call: Call) -> WriteTxnMarkersResponse:
    """End a producer's epoch on a partition with a control batch.

    A marker of (pid, epoch) fences older epochs at once, also those of a producer that the partition has never seen. It
    is written as with acks=all: the response waits for the replicas.
    """
    request: WriteTxnMarkersRequest = call.request
    response = WriteTxnMarkersResponse()
    awaited: list[Awaited] = []
    for marker in request.markers:
        result = WriteTxnMarkersResponseWritableTxnMarkerResult(producer_id=marker.producer_id)
        for topic in marker.topics:
            parts = [_write_marker(call, marker, topic.name, index, awaited) for index in topic.partition_indexes]
            result.topics.append(WriteTxnMarkersResponseWritableTxnMarkerTopicResult(name=topic.name, partitions=parts))
        response.markers.append(result)
    call.cluster.notify()
    if awaited:
        await until_replicated(call, awaited, call.cluster.config.request_timeout_ms)
    return response


def _write_marker(
    call: Call, marker: WriteTxnMarkersRequestWritableTxnMarker, name: str, index: int, awaited: list[Awaited]
) -> WriteTxnMarkersResponseWritableTxnMarkerPartitionResult:
    result = WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(partition_index=index)
    found = call.find(name, index)
    if found is None or not call.leads(found[1]):
        # A broker searches the replicas that it leads, and does not distinguish the two cases.
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    topic, partition = found
    result.error_code = _append_marker(call, marker, partition)
    if result.error_code == ErrorCode.NONE and partition.high_watermark < partition.log.end_offset:
        awaited.append(Awaited(topic, partition, partition.log.end_offset, partial(_refuse, result)))
    return result


def _refuse(result: WriteTxnMarkersResponseWritableTxnMarkerPartitionResult, error: ErrorCode) -> None:
    result.error_code = error


def _append_marker(call: Call, marker: WriteTxnMarkersRequestWritableTxnMarker, partition: Partition) -> ErrorCode:
    if partition.under_min_isr:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return partition.log.append_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        partition.leader_epoch,
        call.now,
    )
