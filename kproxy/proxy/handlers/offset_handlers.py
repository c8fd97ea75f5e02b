"""Requests about groups' offsets: ordered after what kproxy's transactions do to the same groups, in every version.

OffsetCommit (8), OffsetFetch (9), DeleteGroups (42), OffsetDelete (47).

v0 meant ZooKeeper, at any broker. kproxy keeps these offsets in Kafka's groups: so the shell sends the requests to the
group's coordinator. OffsetCommit v1 is the simple consumer's: generation -1, no member id.
"""

from typing import Any

from kproxy.budget import RequestBudget
from kproxy.codec._generated.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseDeletableGroupResult,
)
from kproxy.codec._generated.offset_commit import OffsetCommitRequest
from kproxy.codec._generated.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.context import Context
from kproxy.proxy.coordinator_requests import (
    BeforeOffsetChange,
    BeforeOffsetFetch,
    CoordinatorRequest,
    GroupRequest,
    UnstableOffsets,
)
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler, Local, Lowered
from kproxy.proxy.offset_fetch_overlay import (
    FIRST_OF_IDS,
    FIRST_STABLE,
    groups_of,
    overlay,
    refused_commit,
    refused_fetch,
    says_something,
    stable_requests,
)

#: What the transaction log says, and the request that waited for it.
_SAID, _WAITING = "said", "waiting"


class _Offsets(Handler):
    """A request that is asked of the broker once the transaction log has been read."""

    #: Clients sent v0 to any broker.
    v0_at_any_broker = True

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Where offsets may be in the log, their owner has to be known."""
        return ctx.services.follows_groups or upstream != version

    def _ask(self, exchange: Exchange) -> Message | GroupRequest:
        """What goes to the broker, or, of the versions that were sent to any broker, to the group's coordinator."""
        request: Any = exchange.request
        message: Message = request
        at_any = exchange.client_version == 0 and self.v0_at_any_broker
        return GroupRequest(request.group_id, message) if at_any else message

    def _go_on(self, exchange: Exchange, said: OffsetFetchResponse) -> Again | GroupRequest:
        exchange.notes[_SAID] = said
        asked = self._ask(exchange)
        return asked if isinstance(asked, GroupRequest) else Again(asked)

    def _as_it_is(self, exchange: Exchange) -> bool:
        return exchange.upstream_version == exchange.client_version


class _Change(_Offsets):
    """A request that changes offsets: first the broker gets what transactions have committed."""

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        """Waits for the transaction log, if offsets may be in it."""
        if not ctx.services.follows_groups:
            return self._ask(exchange)
        exchange.notes[_WAITING] = True
        return BeforeOffsetChange(self._groups(exchange.request))

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        """The broker's response, after what was committed before."""
        if exchange.notes.pop(_WAITING, False):
            if response.error_code:
                return self._refused(exchange.request, response.error_code)
            return self._go_on(exchange, response)
        answer: Message = response
        return AsItIs() if self._as_it_is(exchange) else answer

    def _groups(self, request: Any) -> list[str]:
        return [request.group_id]

    def _refused(self, request: Any, error_code: int) -> Message:
        """The response where nothing was changed; clients retry it."""
        raise NotImplementedError


class DeleteGroups(_Change):
    """A group that is deleted stays deleted: no offset that was committed before is written to it afterwards."""

    v0_at_any_broker = False

    def _groups(self, request: DeleteGroupsRequest) -> list[str]:
        return request.groups_names

    def _refused(self, request: DeleteGroupsRequest, error_code: int) -> Message:
        return DeleteGroupsResponse(
            results=[DeleteGroupsResponseDeletableGroupResult(name, error_code) for name in request.groups_names]
        )


class OffsetDelete(_Change):
    """An offset that is deleted stays deleted, as in ``DeleteGroups``."""

    v0_at_any_broker = False

    def _refused(self, request: OffsetDeleteRequest, error_code: int) -> Message:
        return OffsetDeleteResponse(error_code=error_code)


class OffsetCommit(_Change):
    """v0 and v1 as a commit to Kafka's groups; the timestamp of v1 is the broker's business since v2."""

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        """Drops what later versions can't say: a timestamp for each partition, and retention from v5 on."""
        request: Any = exchange.request
        if exchange.upstream_version != 1:
            for topic in request.topics:
                for row in topic.partitions:
                    row.commit_timestamp = -1
        if exchange.upstream_version > 4:
            request.retention_time_ms = -1
        return super().lift(ctx, exchange, budget)

    def _refused(self, request: OffsetCommitRequest, error_code: int) -> Message:
        return refused_commit(request, error_code)


class OffsetFetch(_Offsets):
    """v0: a partition without an offset is UNKNOWN_TOPIC_OR_PARTITION, as it was in ZooKeeper's days."""

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local | CoordinatorRequest:
        if not ctx.services.follows_groups:
            return self._ask(exchange)
        exchange.notes[_WAITING] = True
        request: OffsetFetchRequest = exchange.request
        version = exchange.client_version
        unstable = UnstableOffsets.WAIT
        if version >= FIRST_STABLE:
            unstable = UnstableOffsets.TELL if request.require_stable else UnstableOffsets.LAST
        stable = stable_requests(request, version)
        return BeforeOffsetFetch(groups_of(request, version), unstable, version >= FIRST_OF_IDS, stable)

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        """The broker's response with what the log says, with the old error where nothing was committed."""
        request, version = exchange.request, exchange.client_version
        if exchange.notes.pop(_WAITING, False):
            if response.error_code:
                return refused_fetch(request, version, response.error_code)
            return self._go_on(exchange, response)
        said = exchange.notes.get(_SAID)
        if said is not None and says_something(said):
            response = overlay(request, version, response, said)
        elif self._as_it_is(exchange):
            return AsItIs()
        if version == 0:
            for topic in response.topics:
                for row in topic.partitions:
                    if row.committed_offset < 0 and row.error_code == ErrorCode.NONE:
                        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer: Message = response
        return answer
