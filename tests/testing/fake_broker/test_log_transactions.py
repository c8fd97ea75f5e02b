"""What is undecided in a log, what was aborted, and what an election does to both."""

from kproxy.testing.fake_broker.log_transactions import EndedTransaction, LogTransactions


def ended(*, committed: bool = False) -> LogTransactions:
    """Producer 7 from 2 to its marker at 5."""
    known = LogTransactions()
    known.began(7, 0, 2)
    known.began(7, 0, 4)
    known.ended(7, 5, committed)
    return known


def test_all_below_the_first_open_batch_is_stable() -> None:
    known = LogTransactions()
    assert known.stable_offset(9) == 9
    known.began(7, 1, 3)
    known.began(8, 0, 5)
    known.began(7, 1, 6)
    assert (known.stable_offset(9), known.stable_offset(2)) == (3, 2)
    assert (known.is_open(7, 1), known.is_open(7, 2), known.is_open(9, 0)) == (True, False, False)
    assert (known.first_offset(7), known.first_offset(9)) == (3, -1)
    known.ended(7, 7, True)
    assert known.stable_offset(9) == 5


def test_a_decision_counts_once_its_marker_is_replicated() -> None:
    known = ended(committed=True)
    assert [known.stable_offset(mark) for mark in (1, 5, 6)] == [1, 2, 6]


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    known = ended()
    known.ended(7, 9, False)
    known.ended(8, 9, False)
    assert known.aborted(0, 100) == [EndedTransaction(7, 0, 2, 5, False)]


def test_aborted_is_what_reaches_into_the_part_that_is_read() -> None:
    known = ended()
    assert [len(known.aborted(*part)) for part in ((0, 2), (0, 3), (5, 9), (6, 9))] == [0, 1, 1, 0]
    assert (known.is_aborted(7, 2), known.is_aborted(7, 6), known.is_aborted(8, 2)) == (True, False, False)
    assert ended(committed=True).aborted(0, 9) == []


def test_who_loses_its_marker_is_open_again_and_who_loses_all_is_forgotten() -> None:
    known = ended()
    known.truncate(6)
    assert known.is_aborted(7, 2)
    known.began(7, 1, 6)
    known.truncate(5)
    assert (known.aborted(0, 9), known.first_offset(7), known.is_open(7, 0)) == ([], 2, True)
    known.truncate(2)
    assert known.stable_offset(2) == 2
    assert known.first_offset(7) == -1
