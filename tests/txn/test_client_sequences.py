"""What a batch is by its client's own sequence."""

import pytest

from kproxy.txn.client_sequences import ClientSequences, Order
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch

CLIENT = Producer(7, 0)


def batch(sequence: int, records: int = 1, partition: int = 0, crc: int = 7) -> ClientBatch:
    return ClientBatch("t", partition, memoryview(bytearray()), records, sequence, crc)


def sent(sequences: ClientSequences[str], *batches: ClientBatch, client: Producer = CLIENT) -> None:
    for one in batches:
        assert sequences.order(client, one) == (Order.NEXT, None)
        sequences.note(one, f"{one.base_sequence}")


def test_batches_count_on_in_each_partition_by_itself() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(0, 3), batch(0, 1, partition=1), batch(3, 2), batch(1, 1, partition=1), batch(5))


def test_the_first_of_a_partition_may_have_any_sequence() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(400), batch(401))


def test_a_repeated_batch_is_known_again_and_five_are_remembered() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, *(batch(n) for n in range(6)))
    assert [sequences.order(CLIENT, batch(n)) for n in range(1, 6)] == [(Order.AGAIN, str(n)) for n in range(1, 6)]
    assert sequences.order(CLIENT, batch(0)) == (Order.OUT_OF_ORDER, None)


def test_a_gap_is_out_of_order() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(0, 2))
    assert sequences.order(CLIENT, batch(3)) == (Order.OUT_OF_ORDER, None)


@pytest.mark.parametrize("other", [batch(4, 3, crc=8), batch(4, 2), batch(5, 1), batch(3, 2), batch(5, 9)])
def test_two_batches_with_the_same_sequence_contradict_each_other(other: ClientBatch) -> None:
    """One is a late copy of a transaction that was aborted before it arrived, the other a new batch."""
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(0, 4))
    sequences.begin()
    sent(sequences, batch(4, 3))
    assert sequences.order(CLIENT, batch(4, 3)) == (Order.AGAIN, "4")
    assert sequences.order(CLIENT, other) == (Order.CONTRADICTED, None)


def test_the_checksum_of_a_batch_that_another_instance_took_is_unknown() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sequences.restore(CLIENT, ("t", 0), 3, [(0, 3, "written elsewhere")])
    assert sequences.order(CLIENT, batch(0, 3, crc=8)) == (Order.AGAIN, "written elsewhere")
    assert sequences.order(CLIENT, batch(0, 2)) == (Order.CONTRADICTED, None)


def test_a_new_epoch_begins_again() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(0), batch(1))
    sent(sequences, batch(0), client=Producer(7, 1))
    sent(sequences, batch(0), client=Producer(6, 0))


def test_sequences_go_round() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    last = (1 << 31) - 1
    sent(sequences, batch(last - 1, 4), batch(2))


def test_where_sequences_go_round_the_last_batches_are_known_again() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    last = (1 << 31) - 1
    sent(sequences, batch(last, 1), batch(0))
    assert sequences.order(CLIENT, batch(last, 1)) == (Order.AGAIN, str(last))
    assert sequences.order(CLIENT, batch(0)) == (Order.AGAIN, "0")


def test_who_has_no_sequences_always_sends_the_next() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(-1), batch(-1))
    sent(sequences, batch(0), batch(-1), batch(1), batch(-1), batch(2))


def test_the_next_sequence_is_known_of_the_client_that_has_sent_something() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(5))
    assert sequences.following(CLIENT, ("t", 0), 40) == 6
    assert sequences.following(CLIENT, ("t", 1), 40) == 40
    assert [sequences.following(Producer(*other), ("t", 0), 40) for other in ((7, 1), (6, 9), (8, 0))] == [40] * 3


def test_what_another_client_has_sent_through_other_instances_takes_the_place_of_all() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(5, partition=1))
    other = Producer(7, 1)
    sequences.restore(other, ("t", 0), 3, [])
    assert sequences.following(other, ("t", 0), 40) == 3
    sent(sequences, batch(3), batch(0, partition=1), client=other)


TOP = (1 << 31) - 1


class TestSequencesOfATransactionThatHasEnded:
    @pytest.mark.parametrize("at", [10, TOP - 1], ids=["", "around"])
    @pytest.mark.parametrize(
        ("first", "records", "is_used"),
        [(0, 3, True), (0, 1, True), (2, 1, True), (0, 4, True), (2, 9, True), (-1, 2, True), (-1, 1, False)],
    )
    def test_whatever_has_some_of_them_is_neither_new_nor_repeated(
        self, at: int, first: int, records: int, is_used: bool
    ) -> None:
        sequences: ClientSequences[str] = ClientSequences()
        sent(sequences, batch(at, 3))
        sequences.begin()
        found = Order.USED if is_used else Order.OUT_OF_ORDER
        assert sequences.order(CLIENT, batch(round_(at + first), records)) == (found, None)

    def test_those_after_them_are_the_next(self) -> None:
        sequences: ClientSequences[str] = ClientSequences()
        sent(sequences, batch(0, 3))
        sequences.begin()
        assert sequences.order(CLIENT, batch(4)) == (Order.OUT_OF_ORDER, None)
        sent(sequences, batch(3))
        assert sequences.order(CLIENT, batch(3)) == (Order.AGAIN, "3")
        assert sequences.order(CLIENT, batch(3, 2)) == (Order.CONTRADICTED, None)
        assert sequences.order(CLIENT, batch(2)) == (Order.USED, None)

    @pytest.mark.parametrize(
        ("first", "records", "following"), [(0, 3, 3), (0, 1, 3), (2, 1, 3), (0, 4, 4), (2, 9, 11)]
    )
    @pytest.mark.parametrize("at", [10, TOP - 1], ids=["", "around"])
    def test_a_client_continues_after_the_refused_batch_if_that_has_more(
        self, at: int, first: int, records: int, following: int
    ) -> None:
        """A late copy ends where a batch ended, or before the next one."""
        sequences: ClientSequences[str] = ClientSequences()
        sent(sequences, batch(at, 3))
        sequences.begin()
        sequences.pass_over(batch(round_(at + first), records))
        assert sequences.following(CLIENT, ("t", 0), -1) == round_(at + following)

    def test_what_another_instance_has_received_is_of_the_transaction_that_is_open(self) -> None:
        sequences: ClientSequences[str] = ClientSequences()
        sent(sequences, batch(0))
        sequences.begin()
        sequences.restore(CLIENT, ("t", 0), 3, [(1, 2, "restored")])
        assert sequences.order(CLIENT, batch(1, 2)) == (Order.AGAIN, "restored")
        sequences.begin()
        assert sequences.order(CLIENT, batch(1, 2)) == (Order.USED, None)

    def test_a_new_epoch_and_a_client_that_may_have_given_up_anything_begin_with_any(self) -> None:
        sequences: ClientSequences[str] = ClientSequences()
        sent(sequences, batch(0))
        sequences.begin()
        sequences.clear()
        sent(sequences, batch(0))
        sequences.begin()
        sent(sequences, batch(0), client=Producer(7, 1))


def round_(sequence: int) -> int:
    return sequence % (TOP + 1)
