"""DeleteRecords (21): versions 0-2. Moves a partition's start; offset -1 means its high watermark."""

from kproxy.codec._generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestDeleteRecordsPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponseDeleteRecordsPartitionResult,
    DeleteRecordsResponseDeleteRecordsTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.fake_api import Api, Call

_TO_THE_END = -1


async def handle(call: Call) -> DeleteRecordsResponse:
    """Delete the records below an offset in each partition."""
    request: DeleteRecordsRequest = call.request
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseDeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(call, topic.name, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(
    call: Call, name: str, part: DeleteRecordsRequestDeleteRecordsPartition
) -> DeleteRecordsResponseDeleteRecordsPartitionResult:
    answer = DeleteRecordsResponseDeleteRecordsPartitionResult(partition_index=part.partition_index, low_watermark=-1)
    found = call.find(name, part.partition_index)
    if found is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not call.leads(found[1]):
        answer.error_code = call.not_leader(found[1])
    else:
        log, end = found[1].log, found[1].high_watermark
        offset = end if part.offset == _TO_THE_END else part.offset
        if not 0 <= offset <= end:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            log.delete_before(offset)
            answer.low_watermark = log.start_offset
    return answer


API = Api(ApiKey.DELETE_RECORDS, (0, 2), handle)
