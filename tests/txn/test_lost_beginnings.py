"""The remedies for a partition of the transaction log whose first records were deleted."""

from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.txn.lost_beginnings import GRACE_SECONDS, LostBeginnings, Remedy

P = 3


class Read:
    """The views of a log of which a snapshot states all before 5."""

    def __init__(self) -> None:
        self.foreign: set[int] = set()
        self.known: set[int] = set()
        self.is_sure = True

    def knows(self, partition: int) -> bool:
        return partition in self.known

    def loader(self, partition: int) -> Any:
        return SimpleNamespace(is_sure=self.is_sure, up_to=5)


def looks(read: Any, *times: float, log_start: int = 6, is_read: bool = True) -> list[Remedy | None]:
    beginnings = LostBeginnings(read)
    return [beginnings.look(P, log_start, 0, now, is_read=is_read) for now in times]


def test_who_has_read_it_states_it_and_the_others_wait() -> None:
    read = Read()
    late = GRACE_SECONDS
    assert looks(read, 0, late - 1, late) == [None, None, Remedy.CONTINUE]
    read.known.add(P)
    assert looks(read, 0, 5) == [None, Remedy.STATE]


@pytest.mark.parametrize("sure", [True, False])
def test_a_snapshot_that_may_be_older_covers_nothing(*, sure: bool) -> None:
    read = Read()
    read.is_sure = sure
    assert looks(read, 0, GRACE_SECONDS, log_start=5) == [None, None if sure else Remedy.CONTINUE]


def test_what_is_not_read_yet_or_of_a_newer_kproxy_is_left_alone() -> None:
    read = Read()
    assert looks(read, 0, GRACE_SECONDS, is_read=False) == [None, None]
    read.foreign.add(P)
    assert looks(read, 0, GRACE_SECONDS) == [None, None]
