"""The parts of responses that refuse what was asked of one topic or configuration, with the error and why."""

from collections.abc import Callable
from typing import Any, Final

from kproxy.codec._generated.alter_configs import AlterConfigsResponseAlterConfigsResourceResponse
from kproxy.codec._generated.create_partitions import CreatePartitionsResponseCreatePartitionsTopicResult
from kproxy.codec._generated.create_topics import CreateTopicsResponseCreatableTopicResult
from kproxy.codec._generated.delete_records import (
    DeleteRecordsResponseDeleteRecordsPartitionResult,
    DeleteRecordsResponseDeleteRecordsTopicResult,
)
from kproxy.codec._generated.delete_topics import DeleteTopicsResponseDeletableTopicResult
from kproxy.codec._generated.elect_leaders import (
    ElectLeadersResponsePartitionResult,
    ElectLeadersResponseReplicaElectionResult,
)
from kproxy.codec._generated.incremental_alter_configs import (
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
)
from kproxy.proxy.screening import Rows


def no_topic(topic: Any, error: int, why: str | None = None) -> CreateTopicsResponseCreatableTopicResult:
    """No topic is created."""
    return CreateTopicsResponseCreatableTopicResult(topic.name, error_code=error, error_message=why, configs=None)


def no_partitions(
    topic: Any, error: int, why: str | None = None
) -> CreatePartitionsResponseCreatePartitionsTopicResult:
    """No partition is added."""
    return CreatePartitionsResponseCreatePartitionsTopicResult(topic.name, error, why)


#: No record is deleted, in any of the partitions named.
nothing_deleted: Final = Rows(
    DeleteRecordsResponseDeleteRecordsTopicResult,
    DeleteRecordsResponseDeleteRecordsPartitionResult,
    fields=(("low_watermark", -1),),
)


def no_deletion(topic: Any, error: int, why: str | None = None) -> DeleteTopicsResponseDeletableTopicResult:
    """The topic, named as versions below 6 or later ones name it, stays."""
    name, topic_id = (topic, bytes(16)) if isinstance(topic, str) else (topic.name, topic.topic_id)
    return DeleteTopicsResponseDeletableTopicResult(name, topic_id, error, why)


def no_election(topic: Any, error: int, why: str | None = None) -> ElectLeadersResponseReplicaElectionResult:
    """No leader changes."""
    rows = [ElectLeadersResponsePartitionResult(index, error, why) for index in topic.partitions]
    return ElectLeadersResponseReplicaElectionResult(topic.topic, rows)


def of_resource(row: type[Any]) -> Callable[..., object]:
    """A function that refuses one resource of a request about configurations."""

    def refusal(item: Any, error: int, why: str | None = None) -> object:
        return row(error, why, item.resource_type, item.resource_name)

    return refusal


no_change: Final = of_resource(AlterConfigsResponseAlterConfigsResourceResponse)
no_incremental_change: Final = of_resource(IncrementalAlterConfigsResponseAlterConfigsResourceResponse)
