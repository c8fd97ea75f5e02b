"""OffsetCommit (8), OffsetFetch (9): the old versions that mean something else than the new ones.

v0 meant ZooKeeper, at any broker. kproxy keeps these offsets in Kafka's groups: so the shell sends the requests to the
group's coordinator. OffsetCommit v1 is the simple consumer's: generation -1, no member id.
"""

from typing import Any

from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.asks import Ask, GroupAsk
from kproxy.proxy.handlers.base import Again, AsItIs, Context, Exchange, Handler, Local


class OffsetCommit(Handler):
    """v0 and v1 as a commit to Kafka's groups; the timestamp of v1 is the broker's business since v2."""

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local | Ask:
        """Drops what later versions can't say: a timestamp for each partition, and retention from v5 on."""
        request: Any = exchange.request
        if exchange.upstream_version != 1:
            for topic in request.topics:
                for row in topic.partitions:
                    row.commit_timestamp = -1
        if exchange.upstream_version > 4:
            request.retention_time_ms = -1
        answer: Message = request
        return GroupAsk(request.group_id, answer) if exchange.client_version == 0 else answer


class OffsetFetch(Handler):
    """v0: a partition without an offset is UNKNOWN_TOPIC_OR_PARTITION, as it was in ZooKeeper's days."""

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local | Ask:
        """For v0: of the group's coordinator."""
        request: Any = exchange.request
        message: Message = request
        return GroupAsk(request.group_id, message) if exchange.client_version == 0 else message

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Message | Again | AsItIs:
        """The answer, with the old error where nothing was committed."""
        if exchange.client_version == 0:
            for topic in response.topics:
                for row in topic.partitions:
                    if row.committed_offset < 0 and row.error_code == ErrorCode.NONE:
                        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer: Message = response
        return answer
