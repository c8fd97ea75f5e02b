"""What may be late of a client whose sequences are not known yet."""

from kproxy.txn.first_batches import FirstBatches

ONE, TWO = ("t", 0), ("t", 1)


def test_the_batches_of_a_partition_come_over_one_connection_until_the_transaction_has_ended() -> None:
    batches = FirstBatches()
    assert batches.admit([ONE], 1)
    assert batches.admit([ONE], 1)
    assert not batches.admit([ONE], 2)
    assert batches.admit([TWO], 2)
    assert not batches.admit([TWO], 1)
    assert not batches.knows([ONE])
    batches.ended()
    assert batches.knows([ONE, TWO])
    for connection in (3, 4):
        assert batches.admit([ONE, TWO], connection)


def test_what_was_not_written_is_not_known() -> None:
    batches = FirstBatches()
    batches.admit([ONE], 1)
    batches.ended()
    assert not batches.knows([ONE, TWO])
    assert batches.knows([])
