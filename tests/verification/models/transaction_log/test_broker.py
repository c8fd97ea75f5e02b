"""The model's broker, against what was measured (the contract tests ask real ones the same)."""

from kproxy.txn.ids import Producer
from verification.models.transaction_log.broker import Answer, Table, arrive, fence

P = Producer(5, 3)


def filled(*sequences: int) -> Table:
    table: Table = ()
    for end, sequence in enumerate(sequences):
        table = arrive(table, end, P, sequence).table
    return table


def test_an_unknown_producer_begins_anywhere() -> None:
    assert arrive((), 9, P, 7) == Answer("", 9, ((5, 3, ((7, 9),)),), is_new=True)


def test_a_repeated_batch_is_a_success_with_the_first_offset() -> None:
    table = filled(0, 1, 2)
    assert arrive(table, 9, P, 1) == Answer("", 1, table)


def test_gaps_older_and_newer_epochs() -> None:
    table = filled(0, 1)
    assert arrive(table, 9, P, 3).error == "out of order"
    assert arrive(table, 9, Producer(5, 2), 0).error == "fenced"
    assert arrive(table, 9, Producer(5, 4), 2).error == "out of order"
    assert arrive(table, 9, Producer(5, 4), 0).table == ((5, 4, ((0, 9),)),)
    assert arrive(table, 9, P, 2).is_new
    assert arrive(table, 9, Producer(6, 0), 0).is_new


def test_five_batches_are_remembered() -> None:
    table = filled(*range(6))
    assert arrive(table, 9, P, 0).error == "out of order"
    assert arrive(table, 9, P, 1).offset == 1


def test_a_marker_fences_earlier_epochs_and_a_known_later_one_stays() -> None:
    fenced = fence(filled(0), Producer(5, 4))
    assert arrive(fenced, 9, P, 1).error == "fenced"
    assert arrive(fenced, 9, Producer(5, 4), 1).error == "out of order"
    assert arrive(fenced, 9, Producer(5, 4), 0).is_new
    assert arrive(fence((), P), 9, Producer(5, 2), 0).error == "fenced"
    assert fence(fenced, P) == fenced
