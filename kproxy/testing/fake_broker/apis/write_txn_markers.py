"""WriteTxnMarkers (27): versions 1-2. Ends a producer's epoch on a partition with a control batch.

A marker of (pid, epoch) fences older epochs at once, also those of a producer that the partition has never seen.
It is written as with acks=all: the response waits for the replicas.
"""

from functools import partial

from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseWritableTxnMarkerPartitionResult,
    WriteTxnMarkersResponseWritableTxnMarkerResult,
    WriteTxnMarkersResponseWritableTxnMarkerTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.partition import Partition
from kproxy.testing.fake_broker.replicated import Awaited, until_replicated


async def handle(call: Call) -> WriteTxnMarkersResponse:
    """Write every marker."""
    request: WriteTxnMarkersRequest = call.request
    response = WriteTxnMarkersResponse()
    awaited: list[Awaited] = []
    for marker in request.markers:
        result = WriteTxnMarkersResponseWritableTxnMarkerResult(producer_id=marker.producer_id)
        for topic in marker.topics:
            parts = [_write(call, marker, topic.name, index, awaited) for index in topic.partition_indexes]
            result.topics.append(WriteTxnMarkersResponseWritableTxnMarkerTopicResult(name=topic.name, partitions=parts))
        response.markers.append(result)
    call.cluster.notify()
    if awaited:
        await until_replicated(call, awaited, call.cluster.config.request_timeout_ms)
    return response


def _write(
    call: Call, marker: WriteTxnMarkersRequestWritableTxnMarker, name: str, index: int, awaited: list[Awaited]
) -> WriteTxnMarkersResponseWritableTxnMarkerPartitionResult:
    result = WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(partition_index=index)
    found = call.find(name, index)
    if found is None or not call.leads(found[1]):
        # A broker searches the replicas that it leads, and does not distinguish the two cases.
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    topic, partition = found
    result.error_code = _append(call, marker, partition)
    if result.error_code == ErrorCode.NONE and partition.high_watermark < partition.log.end_offset:
        awaited.append(Awaited(topic, partition, partition.log.end_offset, partial(_refuse, result)))
    return result


def _refuse(result: WriteTxnMarkersResponseWritableTxnMarkerPartitionResult, error: ErrorCode) -> None:
    result.error_code = error


def _append(call: Call, marker: WriteTxnMarkersRequestWritableTxnMarker, partition: Partition) -> ErrorCode:
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


API = Api(ApiKey.WRITE_TXN_MARKERS, (1, 2), handle)
