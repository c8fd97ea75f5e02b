"""Guards of the requests that describe groups (``KafkaApis``): a description must not name topics that are hidden."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from kproxy.codec._generated.consumer_group_describe import ConsumerGroupDescribeResponseDescribedGroup
from kproxy.codec._generated.describe_groups import DescribeGroupsResponseDescribedGroup
from kproxy.codec._generated.share_group_describe import ShareGroupDescribeResponseDescribedGroup
from kproxy.codec._generated.streams_group_describe import StreamsGroupDescribeResponseDescribedGroup
from kproxy.proxy.authorization.access import ERRORS, Access
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType
from kproxy.proxy.authorization.guards import Guard, on_name
from kproxy.proxy.screening import Amend, Parts, Screened

_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC


def _operations(access: Access) -> Amend:
    def change(answer: Any) -> None:
        for group in answer.groups:
            group.authorized_operations = access.authorized(group.authorized_operations, _GROUP, group.group_id)

    return change


def _describes(row: type[Any], asked: str) -> Parts:
    return Parts(
        on_name(Operation.DESCRIBE, _GROUP),
        lambda name, error: row(error_code=error, group_id=name),
        parts=(asked,),
        results="groups",
        amend=_operations,
    )


def _describes_topics(row: type[Any], names: Callable[[Any], Iterator[str]]) -> Guard:
    """As other groups; a group with a topic that the client may not describe is refused after the response."""
    groups = _describes(row, "group_ids")

    def guard(access: Access, request: Any, version: int) -> Screened:
        screened = groups(access, request, version)
        amend = screened.amend
        if amend is None:
            return screened

        def change(answer: Any) -> None:
            for index, group in enumerate(answer.groups):
                if not all(access.sees(Operation.DESCRIBE, _TOPIC, name) for name in names(group)):
                    answer.groups[index] = row(error_code=int(ERRORS[_TOPIC]), group_id=group.group_id)
            amend(answer)

        return screened._replace(amend=change)

    return guard


def _assigned(group: Any) -> Iterator[str]:
    """The topics that the members of a consumer group have, or will have."""
    for member in group.members:
        for assigned in (member.assignment, member.target_assignment):
            yield from (topic.topic_name for topic in assigned.topic_partitions)


def _shared(group: Any) -> Iterator[str]:
    """The topics that the members of a share group have."""
    for member in group.members:
        yield from (topic.topic_name for topic in member.assignment.topic_partitions)


def _streamed(group: Any) -> Iterator[str]:
    """The topics of a Streams group's topology; Kafka checks no others, such as those that it only writes to."""
    for part in () if group.topology is None else group.topology.subtopologies or ():
        yield from [*part.source_topics, *part.repartition_sink_topics]
        yield from (row.name for row in [*part.repartition_source_topics, *part.state_changelog_topics])


describe_groups = _describes(DescribeGroupsResponseDescribedGroup, "groups")
consumer_group_describe = _describes_topics(ConsumerGroupDescribeResponseDescribedGroup, _assigned)
share_group_describe = _describes_topics(ShareGroupDescribeResponseDescribedGroup, _shared)
streams_group_describe = _describes_topics(StreamsGroupDescribeResponseDescribedGroup, _streamed)
