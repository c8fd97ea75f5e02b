"""ListOffsets (2), OffsetCommit (8), OffsetFetch (9): the old versions that mean something else than the new ones.

- ListOffsets v0 answers a list of offsets, newest first. A broker made it of its segments; kproxy makes it of what
  later versions can be asked: the offset for the time, and the log's start (Kafka's ``fetchOffsetsBefore``).
- OffsetCommit v0 and OffsetFetch v0 meant ZooKeeper, at any broker. kproxy keeps them in Kafka's groups: so the shell
  sends them to the group's coordinator. OffsetCommit v1 is the simple consumer's: generation -1, no member id.
"""

from typing import Any

from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.handlers.base import Again, AsItIs, Context, Exchange, Handler, Local

_EARLIEST = -2
_LATEST = -1


class ListOffsets(Handler):
    """v0 in terms of later versions; the others as they are."""

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local:
        """For v0: the offset for each time; the log's starts are asked for behind it where a list wants them."""
        request: ListOffsetsRequest = exchange.request
        if exchange.client_version > 0:
            return request
        return _ask(request, None)

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Message | Again | AsItIs:
        """For v0: the list of offsets."""
        if exchange.client_version > 0:
            answer: Message = response
            return answer
        rows = {(t.name, p.partition_index): p for t in response.topics for p in t.partitions}
        notes = exchange.notes
        if "found" not in notes:
            notes["found"] = rows
            late = {key for key, row in rows.items() if row.offset < 0 and row.error_code == ErrorCode.NONE}
            if late:  # nothing is as new as that time: everything is before it
                return Again(_ask(exchange.request, _LATEST))
            notes["latest"] = {}
        elif "latest" not in notes:
            notes["latest"] = rows
        elif "starts" not in notes:
            notes["starts"] = rows
        if "starts" not in notes and _wants_lists(exchange.request):
            notes["starts"] = None
            return Again(_ask(exchange.request, _EARLIEST))
        if notes.get("starts", 0) is None:
            notes["starts"] = rows
        return _old_style(exchange, response)


def _wants_lists(request: ListOffsetsRequest) -> bool:
    return any(p.max_num_offsets > 1 and p.timestamp != _EARLIEST for t in request.topics for p in t.partitions)


def _ask(request: ListOffsetsRequest, timestamp: int | None) -> ListOffsetsRequest:
    """The request of a v0 client at a later version, for its own times or for ``timestamp`` everywhere."""
    topics = [
        ListOffsetsRequestListOffsetsTopic(
            name=topic.name,
            partitions=[
                ListOffsetsRequestListOffsetsPartition(
                    partition_index=p.partition_index, timestamp=p.timestamp if timestamp is None else timestamp
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def _old_style(exchange: Exchange, response: Any) -> Message:
    notes = exchange.notes
    limits = {(t.name, p.partition_index): p.max_num_offsets for t in exchange.request.topics for p in t.partitions}
    for topic in response.topics:
        for row in topic.partitions:
            key = (topic.name, row.partition_index)
            found = notes["found"].get(key, row)
            offset = found.offset if found.offset >= 0 else notes["latest"].get(key, row).offset
            start = (notes.get("starts") or {}).get(key)
            offsets = [offset, *([start.offset] if start is not None and start.offset < offset else [])]
            row.error_code = found.error_code
            good = found.error_code == ErrorCode.NONE
            row.old_style_offsets = [o for o in offsets if o >= 0][: max(limits.get(key, 1), 0)] if good else []
            row.offset, row.timestamp, row.leader_epoch = -1, -1, -1
    answer: Message = response
    return answer


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
