"""The requests that create, change, move or empty topics: kproxy's own topics are refused, the others pass.

What the state topic says decides which epochs a restarted kproxy fences: no client may write it in any way. Operators
of the cluster can still do all this at the brokers themselves.
"""

from typing import Any

from kproxy.codec._generated.alter_configs import AlterConfigsResponse, AlterConfigsResponseAlterConfigsResourceResponse
from kproxy.codec._generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponseReassignablePartitionResponse,
    AlterPartitionReassignmentsResponseReassignableTopicResponse,
)
from kproxy.codec._generated.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsResponseCreatePartitionsTopicResult,
)
from kproxy.codec._generated.create_topics import CreateTopicsResponse, CreateTopicsResponseCreatableTopicResult
from kproxy.codec._generated.delete_records import (
    DeleteRecordsResponse,
    DeleteRecordsResponseDeleteRecordsPartitionResult,
    DeleteRecordsResponseDeleteRecordsTopicResult,
)
from kproxy.codec._generated.delete_topics import DeleteTopicsResponse, DeleteTopicsResponseDeletableTopicResult
from kproxy.codec._generated.elect_leaders import (
    ElectLeadersResponse,
    ElectLeadersResponsePartitionResult,
    ElectLeadersResponseReplicaElectionResult,
)
from kproxy.codec._generated.incremental_alter_configs import (
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler, Local
from kproxy.proxy.routing import is_own_topic

_TOPIC = 2
#: ElectLeaders' election type (KIP-460).
_UNCLEAN = 1
_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_WHY = "a topic of kproxy's own"


class _Guarded(Handler):
    """Takes kproxy's own topics out of a request and adds their refusals to the response."""

    #: The lists of the request that name topics, and the list of the response.
    asked: tuple[str, ...] = ("topics",)
    told = "topics"
    response: type[Message]

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Always: any request may name such a topic."""
        return True

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local:
        """The request without kproxy's topics; answered at once if nothing else is in it."""
        request = exchange.request
        kept: dict[str, list[Any]] = {}
        refused = []
        for name in self.asked:
            items = getattr(request, name)
            if items is None:
                continue
            kept[name] = [item for item in items if not self.is_own(ctx, item)]
            refused += [self.refusal(item) for item in items if self.is_own(ctx, item)]
        if not refused:
            untouched: Message = request
            return untouched
        if not any(kept.values()):
            answer = self.response()
            setattr(answer, self.told, refused)
            return Local(answer)
        exchange.notes["refused"] = refused
        rest: Message = request.replaced(**kept)
        return rest

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Message | Again | AsItIs:
        """The broker's response, followed by what was refused."""
        refused = exchange.notes.get("refused")
        if not refused and exchange.upstream_version == exchange.client_version:
            return AsItIs()
        getattr(response, self.told).extend(refused or ())
        answer: Message = response
        return answer

    def is_own(self, ctx: Context, item: Any) -> bool:
        """Whether a part of the request is about a topic of kproxy's."""
        return is_own_topic(item.name)

    def refusal(self, item: Any) -> object:
        """The part of the response that refuses a part of the request."""
        raise NotImplementedError


class CreateTopics(_Guarded):
    """CreateTopics (19)."""

    response = CreateTopicsResponse

    def refusal(self, item: Any) -> object:
        """No topic is made."""
        return CreateTopicsResponseCreatableTopicResult(
            name=item.name, error_code=_REFUSED, error_message=_WHY, configs=None
        )


class CreatePartitions(_Guarded):
    """CreatePartitions (37)."""

    response = CreatePartitionsResponse
    told = "results"

    def refusal(self, item: Any) -> object:
        """No partition is added."""
        return CreatePartitionsResponseCreatePartitionsTopicResult(
            name=item.name, error_code=_REFUSED, error_message=_WHY
        )


class DeleteRecords(_Guarded):
    """DeleteRecords (21)."""

    response = DeleteRecordsResponse

    def refusal(self, item: Any) -> object:
        """No record is deleted, in any of the partitions named."""
        rows = [
            DeleteRecordsResponseDeleteRecordsPartitionResult(
                partition_index=row.partition_index, low_watermark=-1, error_code=_REFUSED
            )
            for row in item.partitions
        ]
        return DeleteRecordsResponseDeleteRecordsTopicResult(name=item.name, partitions=rows)


class DeleteTopics(_Guarded):
    """DeleteTopics (20): names up to v5, names or ids from v6 on (KIP-516)."""

    response = DeleteTopicsResponse
    asked = ("topics", "topic_names")
    told = "responses"

    def is_own(self, ctx: Context, item: Any) -> bool:
        """By name, or by an id that is known to be one of kproxy's."""
        if isinstance(item, str):
            return is_own_topic(item)
        return is_own_topic(item.name or "") or item.topic_id in ctx.cluster.own_topic_ids

    def refusal(self, item: Any) -> object:
        """The topic stays."""
        row = DeleteTopicsResponseDeletableTopicResult(error_code=_REFUSED, error_message=_WHY)
        if isinstance(item, str):
            row.name = item
        else:
            row.name, row.topic_id = item.name, item.topic_id
        return row


class AlterConfigs(_Guarded):
    """AlterConfigs (33)."""

    response: type[Message] = AlterConfigsResponse
    asked = ("resources",)
    told = "responses"
    row: type[Any] = AlterConfigsResponseAlterConfigsResourceResponse

    def is_own(self, ctx: Context, item: Any) -> bool:
        """A topic of kproxy's; brokers and groups may have any name."""
        return item.resource_type == _TOPIC and is_own_topic(item.resource_name)

    def refusal(self, item: Any) -> object:
        """Nothing is changed."""
        return self.row(
            error_code=_REFUSED,
            error_message=_WHY,
            resource_type=item.resource_type,
            resource_name=item.resource_name,
        )


class IncrementalAlterConfigs(AlterConfigs):
    """IncrementalAlterConfigs (44, KIP-339)."""

    response = IncrementalAlterConfigsResponse
    row = IncrementalAlterConfigsResponseAlterConfigsResourceResponse


class AlterPartitionReassignments(_Guarded):
    """AlterPartitionReassignments (45, KIP-455)."""

    response = AlterPartitionReassignmentsResponse
    told = "responses"

    def refusal(self, item: Any) -> object:
        """No replica moves."""
        rows = [
            AlterPartitionReassignmentsResponseReassignablePartitionResponse(row.partition_index, _REFUSED, _WHY)
            for row in item.partitions
        ]
        return AlterPartitionReassignmentsResponseReassignableTopicResponse(item.name, rows)


class ElectLeaders(_Guarded):
    """ElectLeaders (43, KIP-460). A request for all partitions passes if the election is not unclean."""

    response = ElectLeadersResponse
    asked = ("topic_partitions",)
    told = "replica_election_results"

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local:
        """An unclean election of all partitions would take kproxy's own topics along: refused as a whole."""
        request = exchange.request
        if request.topic_partitions is None and request.election_type == _UNCLEAN:
            return Local(ElectLeadersResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
        return super().lift(ctx, exchange)

    def is_own(self, ctx: Context, item: Any) -> bool:
        """By the topic's name."""
        return is_own_topic(item.topic)

    def refusal(self, item: Any) -> object:
        """No leader changes."""
        rows = [ElectLeadersResponsePartitionResult(index, _REFUSED, _WHY) for index in item.partitions]
        return ElectLeadersResponseReplicaElectionResult(item.topic, rows)
