"""Guards of the requests of share groups (KIP-932, ``KafkaApis``).

A share session keeps the topics of its first request. A request is always forwarded, with the topics that the client
may read, since the broker counts the requests of a session; and what a response holds is checked again, since the
rules may have changed.
"""

from functools import partial
from typing import Any, Final

from kproxy.codec._generated.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kproxy.codec._generated.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponseTopic,
)
from kproxy.codec._generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kproxy.codec._generated.share_acknowledge import (
    ShareAcknowledgeResponsePartitionData,
    ShareAcknowledgeResponseShareAcknowledgeTopicResponse,
)
from kproxy.codec._generated.share_fetch import (
    ShareFetchResponsePartitionData,
    ShareFetchResponseShareFetchableTopicResponse,
)
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType
from kproxy.proxy.authorization.guards import Asked, Guard, Whole, on_topic
from kproxy.proxy.screening import Parts, Rows, Screened, split

_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC

_READ = Rows(
    ShareFetchResponseShareFetchableTopicResponse,
    ShareFetchResponsePartitionData,
    name=None,
    fields=(("records", b""),),
)
_ACKNOWLEDGED = Rows(
    ShareAcknowledgeResponseShareAcknowledgeTopicResponse, ShareAcknowledgeResponsePartitionData, name=None
)
_DESCRIBED = Rows(
    DescribeShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsResponsePartition,
    name="topic_name",
    asked_index=None,
    fields=(("start_offset", -1),),
)
_ALTERED = Rows(
    AlterShareGroupOffsetsResponseTopic,
    AlterShareGroupOffsetsResponsePartition,
    name="topic_name",
)


def _in_session(rows: Rows) -> Guard:
    """Read on each topic of a request of a session."""

    def guard(access: Access, request: Any, version: int) -> Screened:
        kept, refused = split(request.topics, partial(access.topic_error, Operation.READ), rows)

        def change(answer: Any) -> None:
            for topic in answer.responses:
                error = access.topic_error(Operation.READ, topic)
                if error:
                    topic.partitions = [_refused(row, error) for row in topic.partitions]
            answer.responses.extend(refused)

        return Screened(request=request.replaced(topics=kept) if refused else None, amend=change)

    return guard


def _refused(row: Any, error: int) -> Any:
    """The row of a partition without what it held."""
    blank = type(row)(partition_index=row.partition_index, error_code=error)
    if hasattr(blank, "records"):
        blank.records = b""
    return blank


_READS_GROUP = Asked(Operation.READ, _GROUP, "group_id")
fetch = Whole(_READS_GROUP, rest=_in_session(_READ))
acknowledge = Whole(_READS_GROUP, rest=_in_session(_ACKNOWLEDGED))
alter_offsets = Whole(_READS_GROUP, rest=Parts(on_topic(Operation.READ), _ALTERED, results="responses"))
delete_offsets = Whole(
    Asked(Operation.DELETE, _GROUP, "group_id"),
    rest=Parts(
        on_topic(Operation.READ),
        lambda topic, error: DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, error_code=error),
        results="responses",
    ),
)


def describe_offsets(access: Access, request: DescribeShareGroupOffsetsRequest, version: int) -> Screened:
    """Describe on each group and topic; of all topics of a group those that may be described."""
    hidden = partial(access.topic_error, Operation.DESCRIBE)
    kept, refused = [], []
    refused_topics: dict[str, list[object]] = {}
    for group in request.groups:
        error = access.error(Operation.DESCRIBE, _GROUP, group.group_id)
        if error:
            row = DescribeShareGroupOffsetsResponseGroup(group.group_id)
            row.error_code = error
            refused.append(row)
        elif group.topics is None:
            kept.append(group)
        else:
            topics, refused_topics[group.group_id] = split(group.topics, hidden, _DESCRIBED)
            kept.append(group.replaced(topics=topics))
    if refused and not kept:
        return Screened(answer=DescribeShareGroupOffsetsResponse(groups=refused))

    def change(answer: Any) -> None:
        for group in answer.groups:
            group.topics = [one for one in group.topics if access.sees(Operation.DESCRIBE, _TOPIC, one.topic_name)]
            group.topics.extend(refused_topics.pop(group.group_id, ()))
        answer.groups.extend(refused)

    return Screened(request=request.replaced(groups=kept), amend=change)
