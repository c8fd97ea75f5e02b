"""Batches of model producers."""

from kproxy.codec.batch import iter_records, read_header
from kproxy.txn.ids import Producer
from verification.simulation.transactions.batches import ClientBatch


def test_a_batch_bears_its_producer_and_its_sequence() -> None:
    batch = ClientBatch(2, [b"a", b"b"], "id", Producer(7, 3), 5)
    (topic,) = batch.request.topic_data
    (part,) = topic.partition_data
    header = read_header(part.records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 5)
    assert [record.value for record in iter_records(part.records, max_decompressed_bytes=1000)] == [b"a", b"b"]
    assert (part.index, batch.request.transactional_id, batch.request.acks) == (2, "id", -1)
    assert batch.text == "a b"
