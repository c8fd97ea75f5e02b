"""The questions to the transaction log before a group's offsets are read or written at the broker."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kproxy.codec.messages import ErrorCode
from kproxy.errors import KproxyError, RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.offset_mirror import OffsetMirror
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.net.txn.waits import Changes
from kproxy.proxy.coordinator_requests import BeforeOffsetChange, BeforeOffsetFetch, UnstableOffsets
from kproxy.proxy.offset_fetch_overlay import unstable_row
from kproxy.txn.logged_group_offsets import undecided, unmirrored

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition

#: The wait for a decision where the client can't be answered that it is pending. The client's heartbeats wait
#: for this response, and its session may be as short as 6 s (group.min.session.timeout.ms). The client retries.
_WAIT_SECONDS: Final = 4.0
#: A commit or a deletion waits as long for the log to be read.
_COMMIT_SECONDS: Final = 5.0
#: So long a log that is not there is not asked for again: to make one and to commit there takes longer.
_ABSENT_SECONDS: Final = 0.1
#: Clients ask again, of the same broker.
_LATER: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class GroupAsks:
    """Answers in the words of ``kproxy.proxy.offset_fetch_overlay``."""

    def __init__(
        self,
        cluster: Cluster,
        transactions: TransactionLog,
        changes: Changes,
        mirror: OffsetMirror,
        read_to_end: Callable[[], Awaitable[None]],
        end_left: Callable[[str], None],
        stable: Callable[[Sequence[OffsetFetchRequest]], Awaitable[None]] | None = None,
    ) -> None:
        """``read_to_end`` reads all of the log, if there is one; OSError, RemoteProtocolError if that fails.

        ``end_left`` has ended what is open of a group and whose client is disconnected. ``stable`` waits for
        transactions of the brokers' own, where kproxy has any; OSError.
        """
        self._stable = stable
        self._cluster = cluster
        self._log = transactions
        self._changes = changes
        self._mirror = mirror
        self._read_to_end = read_to_end
        self._end_left = end_left
        self._absent_until = trio.current_time()

    async def before_fetch(self, ask: BeforeOffsetFetch) -> OffsetFetchResponse:
        """The offsets in the log that the broker's groups may not have.

        Ask the broker after this: an offset that is no longer in the log by then has been written to the broker.
        """
        try:
            await self._read_to_end()
            if ask.unstable is UnstableOffsets.WAIT:
                with trio.move_on_after(_WAIT_SECONDS):
                    await self._until_decided(ask.group_ids)
            if self._stable is not None:
                with trio.fail_after(_WAIT_SECONDS):
                    await self._stable(ask.stable)
            said = [self._of(group_id, ask.unstable) for group_id in dict.fromkeys(ask.group_ids)]
            if ask.by_id:
                await self._name(said)
        except (OSError, RemoteProtocolError, trio.TooSlowError):
            return OffsetFetchResponse(error_code=_LATER)
        return OffsetFetchResponse(groups=said)

    async def before_change(self, ask: BeforeOffsetChange) -> OffsetFetchResponse:
        """Returns when the brokers have what was committed before; nobody can write it there again.

        While the log can't be read, groups that are in no known transaction continue.
        """
        try:
            if await self._is_read():
                for group_id in dict.fromkeys(ask.group_ids):
                    await self._mirror.settle(group_id)
        except (OSError, KproxyError):
            is_known = any(
                undecided(self._log.views, group_id) or self._mirror.is_unsettled(group_id)
                for group_id in ask.group_ids
            )
            return OffsetFetchResponse(error_code=_LATER if is_known else ErrorCode.NONE)
        return OffsetFetchResponse()

    async def _is_read(self) -> bool:
        """Reads the log to its end; False if there is none. OSError, RemoteProtocolError if it can't be read."""
        now = trio.current_time()
        if not self._log.opened.is_set() and now < self._absent_until:
            return False
        with trio.move_on_after(_COMMIT_SECONDS) as scope:
            await self._read_to_end()
        if scope.cancelled_caught:
            raise OSError("the transaction log cannot be read")
        if not self._log.opened.is_set():
            self._absent_until = now + _ABSENT_SECONDS
        return self._log.opened.is_set()

    async def _until_decided(self, group_ids: Sequence[str]) -> None:
        seen = self._changes.version
        while any(undecided(self._log.views, group_id) for group_id in group_ids):
            for group_id in group_ids:
                self._end_left(group_id)
            await self._changes.changed(seen)
            seen = self._changes.version

    def _of(self, group_id: str, unstable: UnstableOffsets) -> OffsetFetchResponseGroup:
        views = self._log.views
        open_places = set() if unstable is UnstableOffsets.LAST else undecided(views, group_id)
        if open_places and unstable is UnstableOffsets.WAIT:
            return OffsetFetchResponseGroup(group_id, error_code=_LATER)
        rows: dict[TopicPartition, OffsetFetchResponsePartitions] = {
            (name, index): OffsetFetchResponsePartitions(index, row.offset, row.leader_epoch, row.metadata or "")
            for (name, index), row in unmirrored(views, group_id).offsets.items()
        }
        rows.update((place, unstable_row(place[1])) for place in open_places)
        topics: dict[str, OffsetFetchResponseTopics] = {}
        for (name, _), row in rows.items():
            topics.setdefault(name, OffsetFetchResponseTopics(name)).partitions.append(row)
        return OffsetFetchResponseGroup(group_id, list(topics.values()))

    async def _name(self, said: Sequence[OffsetFetchResponseGroup]) -> None:
        """Fills in the topics' ids; deleted topics are left out."""
        names = dict.fromkeys(topic.name for group in said for topic in group.topics)
        if not names:
            return
        ids = await self._cluster.metadata.ids(names)
        for group in said:
            group.topics = [topic for topic in group.topics if topic.name in ids]
            for topic in group.topics:
                topic.topic_id = ids[topic.name]
