"""Which successes show that a log has lost acknowledged records."""

import pytest

from kproxy.dedup.lanes import Send, Track
from kproxy.dedup.losses import KnownEnds, Loss

KEY = (b"t", 0)


def success(start: int, records: int, taken_at: float, index: int = 0) -> Send:
    """The success of a batch of producer 7."""
    return Send(Track((b"t", index), 7, 0), memoryview(b""), records, taken_at, 0, 0, base_offset=start)


def seen(*batches: tuple[int, int, float, float]) -> list[Loss]:
    """The losses that successes show: of each its first offset, its records, when it was taken, and its response."""
    found: list[Loss] = []
    ends = KnownEnds(found.append)
    for start, records, taken_at, now in batches:
        ends.written([success(start, records, taken_at)], now)
    return found


def test_a_log_that_grows_has_lost_nothing() -> None:
    assert seen((0, 3, 1, 2), (3, 1, 3, 4), (9, 1, 5, 6)) == []


def test_what_is_taken_after_a_success_and_has_an_offset_below_shows_a_loss_once() -> None:
    assert seen((0, 10, 1, 2), (6, 1, 3, 4), (7, 1, 5, 6)) == [Loss(KEY, 7, records=4, end=10, start=6)]
    assert seen((0, 10, 1, 2), (0, 1, 3, 4)) == [Loss(KEY, 7, records=10, end=10, start=0)]


@pytest.mark.parametrize("taken_at", [1, 2])
def test_what_was_taken_before_that_success_may_have_been_written_before(taken_at: float) -> None:
    assert seen((5, 1, 1, 2), (4, 1, taken_at, 3), (6, 1, 4, 5)) == []
    assert seen((0, 2, 1, 2), (5, 1, 1, 2), (3, 1, taken_at, 3)) == []


def test_an_offset_that_was_acknowledged_before_shows_a_loss_whenever_its_batch_was_taken() -> None:
    assert seen((0, 5, 1, 2), (5, 5, 1, 2), (7, 1, 1, 3), (8, 1, 1, 4)) == [Loss(KEY, 7, records=3, end=10, start=7)]


def test_the_oldest_partitions_are_forgotten() -> None:
    ends = KnownEnds(most=2)
    for index in range(3):
        ends.written([success(0, 1, 1, index)], 2)
    ends.written([success(1, 1, 3, 2)], 4)
    assert len(ends) == 2


def test_who_keeps_what_is_in_doubt_learns_from_where_on_a_log_was_cut() -> None:
    cuts: list[tuple[object, int]] = []
    ends = KnownEnds(cut=lambda *cut: cuts.append(cut))
    ends.written([success(0, 10, 1)], 2)
    ends.written([success(4, 1, 3), success(5, 1, 3)], 4)
    assert cuts == [(KEY, 4)]


@pytest.mark.parametrize(("start", "cut"), [(100, True), (149, True), (150, False), (99, False), (-1, False)])
def test_a_loss_that_others_find_is_a_cut_of_what_was_written_without_a_gap(start: int, cut: bool) -> None:
    """A batch that is known to begin later may have been written after the cut."""
    cuts: list[tuple[object, int]] = []
    losses: list[Loss] = []
    ends = KnownEnds(losses.append, cut=lambda *cut: cuts.append(cut))
    ends.written([success(100, 50, 1)], 2)
    ends.lost(Loss(KEY, 8, 5, 150, start))
    assert len(losses) == 1
    assert cuts == ([(KEY, start)] if cut else [])
