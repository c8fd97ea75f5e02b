"""ListOffsets (2): v0 in terms of later versions, and ends for clients that read committed data only.

- v0 answers a list of offsets, newest first. A broker made it of its segments; kproxy makes it of what later versions
  can be asked: the offset for the time, and the log's start (Kafka's ``fetchOffsetsBefore``).
- For read_committed the end is the last stable offset: the broker's, or where kproxy's own transactions are undecided.
  An offset by timestamp after that end is answered as not found.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kproxy.budget import RequestBudget
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Again, Exchange, Handler, Local, Lowered, Stable
from kproxy.proxy.handlers.isolation import READ_UNCOMMITTED, Isolation, isolation_of

_EARLIEST = -2
_LATEST = -1
_MAX_TIMESTAMP = -3
_FIRST_ISOLATION = 2
#: The position of the isolation level in a request.
_ISOLATION_AT = 4
_FIRST_NOT_AVAILABLE = 5

#: A question's response by topic and partition.
_Rows: TypeAlias = Mapping[TopicPartition, ListOffsetsResponseListOffsetsPartitionResponse]
_Question: TypeAlias = Callable[[ListOffsetsRequest, list[_Rows]], ListOffsetsRequest]


class ListOffsets(Handler):
    """v0 in terms of later versions; ends where clients must not see further; the others as they are."""

    def rewrites_this(self, ctx: Context, version: int, request: memoryview) -> bool:
        """Whether the isolation level makes a difference."""
        at = decode_request_header(request).size + _ISOLATION_AT
        asked = request[at] if version >= _FIRST_ISOLATION and at < len(request) else None
        return not _relays(isolation_of(ctx, asked))

    def ask_version(self, ctx: Context, version: int, upstream: int) -> int:
        """One that can say who reads committed data only."""
        if version >= _FIRST_ISOLATION or not isolation_of(ctx, None).filtered:
            return upstream
        newest = ctx.broker_versions.get(ListOffsetsRequest.API_KEY, (0, upstream))[1]
        return max(upstream, min(_FIRST_ISOLATION, newest))

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local:
        """The request with the isolation level that holds; for v0 the first question."""
        request: ListOffsetsRequest = exchange.request
        version = exchange.client_version
        isolation = isolation_of(ctx, request.isolation_level if version >= _FIRST_ISOLATION else None)
        if version > 0 and _relays(isolation):
            return request
        exchange.notes.update(answers=[], isolation=isolation)
        return self._question(exchange, _QUESTIONS[0](request, []) if version == 0 else request)

    def _question(self, exchange: Exchange, request: ListOffsetsRequest) -> ListOffsetsRequest:
        isolation: Isolation = exchange.notes["isolation"]
        sayable = exchange.upstream_version >= _FIRST_ISOLATION  # older brokers have no transactions of their own
        asked = ListOffsetsRequest(
            replica_id=request.replica_id,
            isolation_level=isolation.level if sayable else READ_UNCOMMITTED,
            topics=request.topics,
            timeout_ms=request.timeout_ms,
        )
        exchange.notes["question"] = asked
        return asked

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        isolation: Isolation | None = exchange.notes.get("isolation")
        if isolation is None:
            answer: Message = response
            return answer
        ends = (
            _ends(exchange.notes["question"], response)
            if isolation.filtered and ctx.services.decisions is not None
            else {}
        )
        if not ends:
            return self._next(exchange, response)
        exchange.notes["response"] = response
        times = _times(exchange.notes["question"])
        return Stable(
            ctx.services.stable.question_of(ends, (place for place, time in times.items() if time == _LATEST))
        )

    def resume(
        self, ctx: Context, exchange: Exchange, told: Mapping[TopicPartition, int | None], budget: RequestBudget
    ) -> Lowered:
        response: ListOffsetsResponse = exchange.notes.pop("response")
        times = _times(exchange.notes["question"])
        for topic in response.topics:
            for row in topic.partitions:
                place = (topic.name, row.partition_index)
                if place in told:
                    _end(row, times[place], told[place], exchange.client_version)
        return self._next(exchange, response)

    def _next(self, exchange: Exchange, response: ListOffsetsResponse) -> Lowered:
        """For v0: the next request that has something to ask; after the last one the list of offsets."""
        if exchange.client_version > 0:
            return response
        answers: list[_Rows] = exchange.notes["answers"]
        answers.append({(t.name, p.partition_index): p for t in response.topics for p in t.partitions})
        for question in _QUESTIONS[len(answers) :]:
            request = question(exchange.request, answers)
            if request.topics:
                return Again(self._question(exchange, request))
            answers.append({})
        return _old_style(exchange.request, *answers)


def _relays(isolation: Isolation) -> bool:
    return isolation.as_asked and not isolation.filtered


def _times(request: ListOffsetsRequest) -> dict[TopicPartition, int]:
    return {(t.name, row.partition_index): row.timestamp for t in request.topics for row in t.partitions}


def _ends(request: ListOffsetsRequest, response: ListOffsetsResponse) -> dict[TopicPartition, int]:
    """Up to where it has to be known whether all is decided."""
    times = _times(request)
    ends: dict[TopicPartition, int] = {}
    for topic in response.topics:
        for row in topic.partitions:
            time = times.get((topic.name, row.partition_index), _EARLIEST)
            if row.error_code == ErrorCode.NONE and row.offset >= 0 and (time >= _MAX_TIMESTAMP and time != _EARLIEST):
                ends[topic.name, row.partition_index] = row.offset + (time != _LATEST)
    return ends


def _end(row: ListOffsetsResponseListOffsetsPartitionResponse, time: int, stable: int | None, version: int) -> None:
    """Ends a partition's response where it is not decided any more."""
    if stable is None:
        known = version >= _FIRST_NOT_AVAILABLE
        row.error_code = ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE
        row.offset = -1
    elif time == _LATEST:
        row.offset = stable
    elif row.offset >= stable:
        row.offset = row.timestamp = row.leader_epoch = -1


def _for_the_times(request: ListOffsetsRequest, answers: list[_Rows]) -> ListOffsetsRequest:
    """The first offset at or after each time."""
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
