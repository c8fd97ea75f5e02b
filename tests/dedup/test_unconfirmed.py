"""What may be in doubt."""

import gc
import tracemalloc
from dataclasses import astuple

import pytest

from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.listed import ListedBatch
from kproxy.dedup.origin import ELSEWHERE
from kproxy.dedup.unconfirmed import PendingProduce, Stamp, UnconfirmedBatch

A, B = b"a" * 16, b"b" * 16


def digests(text: str) -> Digests:
    """One record for each letter."""
    return Digests.of(Digest(letter.encode() * 16, 7) for letter in text)


def test_records_are_taken_out_into_an_entry_of_their_own() -> None:
    entry = UnconfirmedBatch((b"t", 0), Stamp(5, 0, 0, 4, 3), 1, sure=True, clean=False, since=9.0)
    entry.recall(digests("abc"), [4, 5, 6])
    taken = entry.part([0, 2])
    assert (list(taken.offsets), list(entry.offsets)) == ([4, 6], [5])
    assert taken.digests == digests("ac")
    assert (taken.key, taken.stamp) == (entry.key, entry.stamp)


@pytest.mark.parametrize(("ours", "theirs", "then"), [(7, 7, 7), (7, 9, 9), (UNTIMED, 9, UNTIMED), (7, UNTIMED, 7)])
def test_a_record_bears_the_time_with_which_it_was_answered(ours: int, theirs: int, then: int) -> None:
    entry = UnconfirmedBatch((b"t", 0), Stamp(5, 0, 0, 4, 2), 1, sure=True, clean=False, since=9.0)
    entry.recall(Digests.of([Digest(A, 1), Digest(B, ours)]), [4, 5])
    entry.taken_as(1, Digest(B, theirs))
    assert list(entry.digests or ()) == [Digest(A, 1), Digest(B, then)]


def test_partitions_are_named_once() -> None:
    places = [PartitionData((b"t", partition), 0, 0) for partition in (0, 1, 0)]
    assert list(PendingProduce(places, due=0.0).keys) == [(b"t", 0), (b"t", 1)]


def test_a_new_request_is_open_and_owed_its_answer() -> None:
    request = PendingProduce([], due=5.0)
    assert not (request.closed or request.timed_out or request.given_up or request.failed)
    assert (request.serial, request.position, request.at, request.arrived_with) == (0, 0, 0.0, 0)


def test_a_batch_that_was_read_from_the_log_has_no_connection_and_no_log_append_time() -> None:
    entry = UnconfirmedBatch((b"t", 0), Stamp(5, 0, 0, 4, 3), 1, sure=True, clean=True, since=9.0)
    assert (entry.origin, entry.answered, entry.log_append_time_ms) == (ELSEWHERE, False, -1)
    assert (entry.taken_at, entry.repeated_from, entry.written) == (0.0, 0.0, True)
    entry.recall(digests("ab"), [4, 5])
    assert not entry.part([0]).clean


def test_records_that_were_refused_unsent_are_nowhere_in_the_log() -> None:
    entry = UnconfirmedBatch.unwritten((b"t", 0), 3, digests("ab"), 9.0)
    assert astuple(entry.stamp) == (-1, -1, -1, -1, 2)
    assert (entry.digests, list(entry.offsets)) == (digests("ab"), [-1, -1])
    assert (entry.serial, entry.since, entry.repeated_from) == (3, 9.0, 9.0)
    assert not (entry.written or entry.sure or entry.clean)


@pytest.mark.parametrize(
    ("failed", "at", "since"),
    [(False, 0.0, 5.0), (False, 3.0, 5.0), (True, 0.0, 5.0), (True, 3.0, 3.0), (True, 7.0, 5.0)],
)
def test_a_client_repeats_a_request_after_an_error_or_its_time_out(failed: bool, at: float, since: float) -> None:
    assert PendingProduce([], due=5.0, failed=failed, at=at).repeated_from == since


def test_what_other_processes_list_takes_no_connection_of_its_own_in_memory() -> None:
    listed = ListedBatch((b"t", 0), 5, 0, 7, 9, 1_000, clean=True)
    entries = [UnconfirmedBatch.of_list(listed, serial, window) for serial in range(2) for window in (0.0, 10.0)]
    assert [(entry.origin.clean_window, entry.origin.ended) for entry in entries] == [(0.0, True), (10.0, True)] * 2
    assert len({id(entry.origin) for entry in entries}) == 2


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("count", [1, 4, 100])
def test_its_size_is_about_what_it_takes(count: int, compared: bool) -> None:
    """It is what the bound of memory counts (``doubt_memory``)."""
    key, number = (b"t", 0), 500
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        entries = []
        for at in range(number):
            first = 1_000 + at * count
            entry = UnconfirmedBatch(key, Stamp(5, 0, first, first, count), 1_000 + at, False, False, 1e9 + at)
            places = range(first, first + count)
            marks = (Digest(place.to_bytes(16, "little"), 1_700_000_000_000 + place) for place in places)
            entry.recall(Digests.of(marks), [10_000_000 + place for place in range(first, first + count)])
            assert entry.digests is not None
            assert not compared or entry.digests.has_any({first})
            entries.append(entry)
        del marks, entry
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.8 * taken < sum(entry.size for entry in entries) < 1.3 * taken
