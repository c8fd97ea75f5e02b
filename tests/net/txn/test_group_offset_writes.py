"""Offsets of groups in transactions are checked with the group's coordinator, and handed to the mirror."""

from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.codec._generated.heartbeat import HeartbeatResponse
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.group_offset_writes import GroupOffsets
from kproxy.txn.ids import Producer
from kproxy.txn.txn_error import TxnError


def group_offsets(ask: Any = None, **mirror: Any) -> GroupOffsets:
    cluster: Any = SimpleNamespace(coordinators=SimpleNamespace(ask=ask))
    mirrors: Any = SimpleNamespace(**mirror)
    return GroupOffsets(cluster, mirrors)


async def test_what_the_coordinator_says_of_the_generation_is_the_answer() -> None:
    async def ask(*_: Any, **__: Any) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)

    offsets = TransactionOffsets(group_id="g", generation_id=3, member_id="m")
    assert await group_offsets(ask).check(offsets) == ErrorCode.ILLEGAL_GENERATION


def test_too_many_are_refused() -> None:
    def refuse() -> None:
        raise TxnError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "too many")

    with pytest.raises(TxnError, match="too many"):
        group_offsets(check_room=refuse).check_room()


def test_what_is_committed_is_handed_to_the_mirror() -> None:
    told: list[str] = []
    group_offsets(committed=told.append).committed("id", Producer(1, 0))
    assert told == ["id"]
