"""OffsetCommits that end transactions."""

from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.coordinator_requests import (
    ApplicationCommit,
)
from tests.net.txn.scripted_requests import REFUSED, Scripted, scripted


class TestApplicationCommit:
    async def commit(self, at: Scripted, member: str = "m", instance: str | None = None, name: str = "in") -> Any:
        """The error of an OffsetCommit, with the topic by name, or by its id."""
        row = OffsetCommitRequestTopic(
            name, bytes(16) if name else b"i" * 16, [OffsetCommitRequestPartition(0, 4, committed_metadata="")]
        )
        request = OffsetCommitRequest("g", 3, member, group_instance_id=instance, topics=[row])
        fake: Any = at
        done = trio.Event()
        answer: Any = await at.commits.begin(ApplicationCommit(fake, 3, request), done)()
        assert done.is_set()
        return answer.topics[0].partitions[0].error_code

    async def test_its_offsets_are_the_transactions(self) -> None:
        async with scripted() as at:
            assert await self.commit(at) == 0
            ((what, connection, offsets),) = at.asked
            assert (what, connection) == ("commit", 3)
            assert isinstance(offsets, TransactionOffsets)
            assert [(row.name, row.partitions[0].offset) for row in offsets.topics] == [("in", 4)]

    async def test_topics_are_named_where_the_client_has_their_ids(self) -> None:
        async with scripted() as at:
            assert await self.commit(at, name="") == 0
            assert at.asked[0] == [b"i" * 16]
            assert [row.name for row in at.asked[1][2].topics] == ["t"]

    @pytest.mark.parametrize("error", [OSError("closed"), RemoteProtocolError("no version")])
    async def test_without_their_names_nothing_is_committed(self, error: Exception) -> None:
        async with scripted() as at:
            at.lost = error
            assert await self.commit(at, name="") == ErrorCode.ILLEGAL_GENERATION
            assert at.asked[1] is ErrorCode.COORDINATOR_NOT_AVAILABLE

    @pytest.mark.parametrize(
        ("member", "instance", "leaves"), [("m", None, True), ("m", "i", False), ("", None, False)]
    )
    async def test_a_member_that_has_to_rejoin_leaves(self, member: str, instance: str | None, *, leaves: bool) -> None:
        async with scripted() as at:
            at.error = REFUSED
            assert await self.commit(at, member, instance) == ErrorCode.ILLEGAL_GENERATION
            assert at.asked[2:] == ([("g", "m", (1, 1))] if leaves else [])
            at.lost = OSError("closed")
            assert await self.commit(at, member, instance) == ErrorCode.ILLEGAL_GENERATION
