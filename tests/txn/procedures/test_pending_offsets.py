"""Offsets of groups that wait in the log for the end of their transaction."""

import pytest

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.txn.procedures.pending_offsets import PendingOffsets
from kproxy.txn.txn_error import TxnError
from tests.txn.procedures.memory_log import Desk, at_once


def offsets(*found: int, group: str = "g") -> TransactionOffsets:
    """As a client sends them."""
    rows = [TransactionOffsetsPartition(0, offset) for offset in found]
    topics = [TransactionOffsetsTopic("in", rows)] if rows else []
    return TransactionOffsets(group_id=group, generation_id=3, member_id="m", topics=topics)


async def test_offsets_are_pending_once_the_log_shows_them() -> None:
    desk = await Desk().initialized()
    pending, transaction = PendingOffsets(desk.keeper, desk.groups), await desk.transaction()
    for record in (offsets(5), offsets(6), offsets(7, group="h"), offsets(group="empty")):
        assert await pending.append(transaction, record) is None
    logged = (await desk.read()).pending[transaction.producer]
    assert [[row.offset for topic in record.topics for row in topic.partitions] for record in logged] == [[6], [7], []]
    assert [(one.group_id, one.topics) for one in transaction.members] == [("g", []), ("h", [])]


@pytest.mark.parametrize("lacking", ["claim", "record", "id"])
async def test_or_the_transaction_must_be_aborted(lacking: str) -> None:
    desk = await Desk().initialized()
    pending, transaction = PendingOffsets(desk.keeper, desk.groups), await desk.transaction()
    if lacking == "claim":
        desk.keeper.claim = None
    if lacking == "record":
        desk.log.lost = [TransactionOffsets]
    if lacking == "id":
        desk.log.view = None
    why = await pending.append(transaction, offsets(5))
    assert why == ("the claim was lost" if lacking == "claim" else "the log did not take the group's offsets")
    assert transaction.members == []


async def test_a_record_whose_response_is_lost_is_found_in_the_log() -> None:
    desk = await Desk().initialized()
    pending, transaction = PendingOffsets(desk.keeper, desk.groups), await desk.transaction()
    desk.log.unheard = [TransactionOffsets]
    assert await pending.append(transaction, offsets(5)) is None


async def test_a_member_that_is_not_current_is_refused_and_so_is_what_there_is_no_room_for() -> None:
    desk = Desk()
    pending = PendingOffsets(desk.keeper, desk.groups)
    await pending.check_member(offsets(5), at_once)
    desk.groups.errors["g"] = ErrorCode.FENCED_INSTANCE_ID
    with pytest.raises(TxnError, match=r"FENCED_INSTANCE_ID.*group g, generation 3"):
        await pending.check_member(offsets(5), at_once)
    desk.groups.is_full = True
    with pytest.raises(TxnError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await pending.check_member(offsets(5), at_once)
