"""What a batch is by its client's own sequence."""

from kproxy.txn.client_sequences import ClientSequences, Order
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch

CLIENT = Producer(7, 0)


def batch(sequence: int, records: int = 1, partition: int = 0) -> ClientBatch:
    return ClientBatch("t", partition, memoryview(bytearray()), records, sequence)


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


def test_a_gap_and_another_size_are_out_of_order() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(0, 2))
    assert sequences.order(CLIENT, batch(3)) == (Order.OUT_OF_ORDER, None)
    assert sequences.order(CLIENT, batch(0, 1)) == (Order.OUT_OF_ORDER, None)


def test_a_new_epoch_begins_again() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(0), batch(1))
    sent(sequences, batch(0), client=Producer(7, 1))
    sent(sequences, batch(0), client=Producer(6, 0))


def test_sequences_go_round() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    last = (1 << 31) - 1
    sent(sequences, batch(last - 1, 4), batch(2))


def test_who_has_no_sequences_always_sends_the_next() -> None:
    sequences: ClientSequences[str] = ClientSequences()
    sent(sequences, batch(-1), batch(-1))
    sent(sequences, batch(0), batch(-1), batch(1), batch(-1), batch(2))
