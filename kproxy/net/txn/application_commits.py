"""OffsetCommits that are the ends of transactions (``on.offset.commit``)."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from kproxy.codec._generated.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kproxy.codec._generated.offset_commit import OffsetCommitRequest
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.topic_names import topic_names
from kproxy.proxy.applications import committed, has_left, offsets_committed_by
from kproxy.proxy.coordinator_requests import ApplicationCommit
from kproxy.txn.txn_error import TxnError

#: A member leaves its group by itself, as any version can say.
_LEAVE_VERSIONS: Final = (1, 1)
_LEAVE_SECONDS: Final = 5.0


class ApplicationCommits:
    """Ends the transactions of applications, and answers their consumers."""

    def __init__(self, jobs: Jobs, cluster: Cluster) -> None:
        self._jobs = jobs
        self._cluster = cluster

    def begin(self, ask: ApplicationCommit, done: trio.Event) -> Callable[[], Awaitable[Message]]:
        """Begins to end the transaction of an application. The function that is returned waits for the response.

        ``done`` is set when the offsets are committed, or will not be.
        """
        result = self._jobs.start(partial(self._commit, ask, done))

        async def answer() -> Message:
            try:
                await result()
            except TxnError as error:
                await self._let_leave(ask.request, error.error_code)
                return committed(ask.request, error.error_code)
            return committed(ask.request, ErrorCode.NONE)

        return answer

    async def _let_leave(self, request: OffsetCommitRequest, error: ErrorCode) -> None:
        """A member that has to rejoin forgets its member id: its group need not wait for the old one to expire."""
        if has_left(request, error):
            return
        leave = LeaveGroupRequest(request.group_id, request.member_id)
        with trio.move_on_after(_LEAVE_SECONDS), suppress(OSError, RemoteProtocolError):
            await self._cluster.coordinators.ask(request.group_id, leave, LeaveGroupResponse, _LEAVE_VERSIONS)

    async def _commit(self, ask: ApplicationCommit, done: trio.Event) -> None:
        try:
            await ask.application.commit(ask.connection, partial(self._offsets, ask.request))
        finally:
            done.set()

    async def _offsets(self, request: OffsetCommitRequest) -> TransactionOffsets:
        names = await topic_names(self._cluster, [topic.topic_id for topic in request.topics if not topic.name])
        return offsets_committed_by(request, names)
