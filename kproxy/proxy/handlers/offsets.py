"""ListOffsets (2), OffsetCommit (8), OffsetFetch (9): the old versions that mean something else than the new ones.

- ListOffsets v0 answers a list of offsets, newest first. A broker made it of its segments; kproxy makes it of what
  later versions can be asked: the offset for the time, and the log's start (Kafka's ``fetchOffsetsBefore``).
- OffsetCommit v0 and OffsetFetch v0 meant ZooKeeper, at any broker. kproxy keeps them in Kafka's groups: so the shell
  sends them to the group's coordinator. OffsetCommit v1 is the simple consumer's: generation -1, no member id.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.handlers.base import Again, AsItIs, Context, Exchange, Handler, Local

_EARLIEST = -2
_LATEST = -1

#: A question's answer by topic and partition.
_Rows: TypeAlias = Mapping[tuple[str, int], ListOffsetsResponseListOffsetsPartitionResponse]
_Question: TypeAlias = Callable[[ListOffsetsRequest, list[_Rows]], ListOffsetsRequest]


class ListOffsets(Handler):
    """v0 in terms of later versions; the others as they are."""

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local:
        """For v0: the first question."""
        request: ListOffsetsRequest = exchange.request
        if exchange.client_version > 0:
            return request
        exchange.notes["answers"] = []
        return _QUESTIONS[0](request, [])

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Message | Again | AsItIs:
        """For v0: the next question that has something to ask; behind the last one the list of offsets."""
        if exchange.client_version > 0:
            answer: Message = response
            return answer
        answers: list[_Rows] = exchange.notes["answers"]
        answers.append({(t.name, p.partition_index): p for t in response.topics for p in t.partitions})
        for question in _QUESTIONS[len(answers) :]:
            request = question(exchange.request, answers)
            if request.topics:
                return Again(request)
            answers.append({})
        return _old_style(exchange.request, *answers)


def _for_the_times(request: ListOffsetsRequest, answers: list[_Rows]) -> ListOffsetsRequest:
    """The first offset at or behind each time."""
    return _ask(request, lambda _, partition: partition.timestamp)


def _for_the_ends(request: ListOffsetsRequest, answers: list[_Rows]) -> ListOffsetsRequest:
    """The log's end where no record is as new as the time: everything is before it."""
    late = {key for key, row in answers[0].items() if row.offset < 0 and row.error_code == ErrorCode.NONE}
    return _ask(request, lambda topic, partition: _LATEST if (topic, partition.partition_index) in late else None)


def _for_the_starts(request: ListOffsetsRequest, answers: list[_Rows]) -> ListOffsetsRequest:
    """The log's start where the list may have a second entry."""
    return _ask(request, lambda _, row: _EARLIEST if row.max_num_offsets > 1 and row.timestamp != _EARLIEST else None)


_QUESTIONS: tuple[_Question, ...] = (_for_the_times, _for_the_ends, _for_the_starts)


def _ask(
    request: ListOffsetsRequest, time_of: Callable[[str, ListOffsetsRequestListOffsetsPartition], int | None]
) -> ListOffsetsRequest:
    """A later version's request for those partitions of a v0 request for which there is a time to ask."""
    asked = ListOffsetsRequest(replica_id=-1)
    for topic in request.topics:
        times = [(p.partition_index, time_of(topic.name, p)) for p in topic.partitions]
        rows = [
            ListOffsetsRequestListOffsetsPartition(partition_index=index, timestamp=time)
            for index, time in times
            if time is not None
        ]
        if rows:
            asked.topics.append(ListOffsetsRequestListOffsetsTopic(name=topic.name, partitions=rows))
    return asked


def _old_style(request: ListOffsetsRequest, found: _Rows, ends: _Rows, starts: _Rows) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        rows = [
            _old_row(
                partition, *(answer.get((topic.name, partition.partition_index)) for answer in (found, ends, starts))
            )
            for partition in topic.partitions
        ]
        response.topics.append(ListOffsetsResponseListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return response


def _old_row(
    asked: ListOffsetsRequestListOffsetsPartition,
    found: ListOffsetsResponseListOffsetsPartitionResponse | None,
    end: ListOffsetsResponseListOffsetsPartitionResponse | None,
    start: ListOffsetsResponseListOffsetsPartitionResponse | None,
) -> ListOffsetsResponseListOffsetsPartitionResponse:
    row = ListOffsetsResponseListOffsetsPartitionResponse(partition_index=asked.partition_index)
    newest = end or found
    row.error_code = ErrorCode.UNKNOWN_SERVER_ERROR if newest is None else newest.error_code
    if newest is not None and row.error_code == ErrorCode.NONE:
        older = [start.offset] if start is not None and start.offset < newest.offset else []
        offsets = [offset for offset in (newest.offset, *older) if offset >= 0]
        row.old_style_offsets = offsets[: max(asked.max_num_offsets, 0)]
    return row


class OffsetCommit(Handler):
    """v0 and v1 as a commit to Kafka's groups; the timestamp of v1 is the broker's business since v2."""

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local:
        """Drops what later versions can't say: a timestamp for each partition, and retention from v5 on."""
        request: Any = exchange.request
        if exchange.upstream_version != 1:
            for topic in request.topics:
                for row in topic.partitions:
                    row.commit_timestamp = -1
        if exchange.upstream_version > 4:
            request.retention_time_ms = -1
        answer: Message = request
        return answer


class OffsetFetch(Handler):
    """v0: a partition without an offset is UNKNOWN_TOPIC_OR_PARTITION, as it was in ZooKeeper's days."""

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Message | Again | AsItIs:
        """The answer, with the old error where nothing was committed."""
        if exchange.client_version == 0:
            for topic in response.topics:
                for row in topic.partitions:
                    if row.committed_offset < 0 and row.error_code == ErrorCode.NONE:
                        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer: Message = response
        return answer
