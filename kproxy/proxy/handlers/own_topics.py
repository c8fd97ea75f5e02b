"""The requests that create, change, move or empty topics: kproxy's own topics are refused, the others pass.

What the state topic says decides which epochs a restarted kproxy fences: no client may write it in any way. Operators
of the cluster can still do all this at the brokers themselves.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kproxy.budget import RequestBudget
from kproxy.codec._generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponseReassignablePartitionResponse,
    AlterPartitionReassignmentsResponseReassignableTopicResponse,
)
from kproxy.codec._generated.elect_leaders import ElectLeadersResponse
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import AsItIs, Exchange, Handler, Local
from kproxy.proxy.routing import is_own_topic
from kproxy.proxy.screening import Parts, Rows
from kproxy.proxy.topic_refusals import (
    no_change,
    no_deletion,
    no_election,
    no_incremental_change,
    no_partitions,
    no_topic,
    nothing_deleted,
)

_TOPIC = 2
#: ElectLeaders' election type (KIP-460).
_UNCLEAN = 1
_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_WHY = "a topic of kproxy's own"


def _named(ctx: Context, topic: Any) -> int:
    """The error of a topic that is named; 0 if it is none of kproxy's."""
    return _REFUSED if is_own_topic(topic.name) else 0


def _deleted(ctx: Context, topic: Any) -> int:
    """By name up to v5; by name, or by an id that is known to be one of kproxy's, from v6 on (KIP-516)."""
    if isinstance(topic, str):
        return _REFUSED if is_own_topic(topic) else 0
    return _REFUSED if is_own_topic(topic.name or "") or topic.topic_id in ctx.cluster.own_topic_ids else 0


def _configured(ctx: Context, item: Any) -> int:
    """Of topics; brokers and groups may have any name."""
    return _REFUSED if item.resource_type == _TOPIC and is_own_topic(item.resource_name) else 0


def _elected(ctx: Context, topic: Any) -> int:
    return _REFUSED if is_own_topic(topic.topic) else 0


_MOVED: Final = Rows(
    AlterPartitionReassignmentsResponseReassignableTopicResponse,
    AlterPartitionReassignmentsResponseReassignablePartitionResponse,
    fields=(("error_message", _WHY),),
)
_CONFIGS: Final = partial(Parts, _configured, parts=("resources",), results="responses")
_PARTS: Final[Mapping[int, Parts]] = {
    ApiKey.CREATE_TOPICS: Parts(_named, partial(no_topic, why=_WHY)),
    ApiKey.CREATE_PARTITIONS: Parts(_named, partial(no_partitions, why=_WHY), results="results"),
    ApiKey.DELETE_RECORDS: Parts(_named, nothing_deleted),
    ApiKey.DELETE_TOPICS: Parts(
        _deleted, partial(no_deletion, why=_WHY), parts=("topics", "topic_names"), results="responses"
    ),
    ApiKey.ALTER_CONFIGS: _CONFIGS(partial(no_change, why=_WHY)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CONFIGS(partial(no_incremental_change, why=_WHY)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Parts(_named, _MOVED, results="responses"),
    ApiKey.ELECT_LEADERS: Parts(
        _elected, partial(no_election, why=_WHY), parts=("topic_partitions",), results="replica_election_results"
    ),
}


class OwnTopics(Handler):
    """Takes kproxy's own topics out of a request and adds their refusals to the response."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Always: any request may name such a topic."""
        return True

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local:
        """The request without kproxy's topics; answered at once if nothing else is in it."""
        request = exchange.request
        screened = _PARTS[request.API_KEY](ctx, request, exchange.client_version)
        if screened.answer is not None:
            return Local(screened.answer)
        exchange.notes["amend"] = screened.amend
        rest: Message = screened.request or request
        return rest

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Message | AsItIs:
        amend = exchange.notes["amend"]
        if amend is not None:
            amend(response)
        elif exchange.upstream_version == exchange.client_version:
            return AsItIs()
        answer: Message = response
        return answer


class ElectLeaders(OwnTopics):
    """ElectLeaders (43, KIP-460). A request for all partitions passes if the election is not unclean."""

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local:
        """An unclean election of all partitions would take kproxy's own topics along: refused as a whole."""
        request = exchange.request
        if request.topic_partitions is None and request.election_type == _UNCLEAN:
            return Local(ElectLeadersResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
        return super().lift(ctx, exchange, budget)
