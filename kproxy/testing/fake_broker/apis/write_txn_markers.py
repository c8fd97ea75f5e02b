"""WriteTxnMarkers (27): versions 1-2. Ends a producer's epoch on a partition with a control batch.

A marker of (pid, epoch) fences older epochs at once, also those of a producer that the partition has never seen.
"""

from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseWritableTxnMarkerPartitionResult,
    WriteTxnMarkersResponseWritableTxnMarkerResult,
    WriteTxnMarkersResponseWritableTxnMarkerTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.api import Api, Call


async def handle(call: Call) -> WriteTxnMarkersResponse:
    """Write every marker."""
    request: WriteTxnMarkersRequest = call.request
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        result = WriteTxnMarkersResponseWritableTxnMarkerResult(producer_id=marker.producer_id)
        for topic in marker.topics:
            parts = [
                WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=_write(call, marker, topic.name, index)
                )
                for index in topic.partition_indexes
            ]
            result.topics.append(WriteTxnMarkersResponseWritableTxnMarkerTopicResult(name=topic.name, partitions=parts))
        response.markers.append(result)
    call.cluster.notify()
    return response


def _write(call: Call, marker: WriteTxnMarkersRequestWritableTxnMarker, name: str, index: int) -> ErrorCode:
    found = call.find(name, index)
    if found is None or not call.leads(found[1]):
        # A broker looks for a replica it leads and does not tell the two cases apart.
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found[1].log.append_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        found[1].leader_epoch,
        call.now,
    )


API = Api(ApiKey.WRITE_TXN_MARKERS, (1, 2), handle)
