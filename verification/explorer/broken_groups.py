"""Rules of a group's offsets in transactions as they must not be."""

from collections.abc import Iterable
from typing import Any, Final

from kproxy.codec._generated.transaction_offsets import TransactionOffsets, TransactionOffsetsPartition
from kproxy.txn.logged_group_offsets import one_of_each_member
from kproxy.txn.procedures.pending_offsets import PendingOffsets
from kproxy.txn.view import IdView
from kproxy.txn.view_values import Ongoing

_CHECK_MEMBER: Final = PendingOffsets.check_member
_CONTINUE: Final = IdView._continue


async def checks_the_member(self: PendingOffsets, offsets: TransactionOffsets, wait: Any) -> None:
    """Check the member alone, in whatever generation its offsets were read."""
    await _CHECK_MEMBER(self, offsets.replaced(generation_id=-1), wait)


def forgets_the_generation(records: Iterable[TransactionOffsets]) -> list[TransactionOffsets]:
    """A commit checks the member alone."""
    return one_of_each_member([record.replaced(generation_id=-1) for record in records])


def ranks_the_oldest_first(said: tuple[int, TransactionOffsetsPartition]) -> tuple[int, int]:
    """Offsets of the older generation count, of those of two ids for one partition."""
    generation, row = said
    return -generation, -row.offset


def leaves_offsets(self: IdView, former: Ongoing, owner: Any, nonce: bytes) -> None:
    """A group's offsets stay under the epoch that they were announced under."""
    records = self.pending.pop(former.producer, None)
    _CONTINUE(self, former, owner, nonce)
    if records:
        self.pending[former.producer] = records
