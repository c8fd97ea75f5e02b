"""DescribeTopicPartitions (75, KIP-966): the cursor of a page names no topic that its client may not describe."""

from typing import Any, Final

from kproxy.budget import RequestBudget
from kproxy.codec._generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
)
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler, Lowered

#: Partitions in a page that is only searched for the next visible topic; brokers give no more (KIP-966).
_PAGE: Final = 2000
_ANSWER: Final = "answer"


class DescribeTopicPartitions(Handler):
    """Reads further pages until the next topic that the client may describe is known.

    The guard of the API (``authorization.topic_guards``) takes hidden topics out of the pages themselves.
    """

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Where access rules hide topics."""
        return ctx.access is not None or upstream != version

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        """The first page, with the cursor on the next visible topic; ``Again`` while that is not known."""
        access: Access | None = ctx.access
        answer: DescribeTopicPartitionsResponse = exchange.notes.setdefault(_ANSWER, response)
        if access is None or answer.next_cursor is None:
            return AsItIs() if exchange.upstream_version == exchange.client_version else answer
        if response is not answer:
            seen = next((topic.name for topic in response.topics if _sees(access, topic.name)), None)
            if seen is not None:
                answer.next_cursor = DescribeTopicPartitionsResponseCursor(seen, 0)
                return answer
        cursor = response.next_cursor
        if cursor is not None and not _sees(access, cursor.topic_name):
            return Again(_page(exchange.request, cursor))
        answer.next_cursor = cursor
        return answer


def _sees(access: Access, name: str | None) -> bool:
    return name is not None and access.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _page(
    request: DescribeTopicPartitionsRequest, cursor: DescribeTopicPartitionsResponseCursor
) -> DescribeTopicPartitionsRequest:
    start = DescribeTopicPartitionsRequestCursor(cursor.topic_name, cursor.partition_index)
    return request.replaced(response_partition_limit=_PAGE, cursor=start)
