"""What clients ask of a transaction's coordinator."""

import pytest

from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest, places_of, size_of

BATCHES = [ClientBatch("t", 0, memoryview(b"123"), 1, 0), ClientBatch("u", 1, memoryview(b"45"), 2, -1)]


@pytest.mark.parametrize(("connection", "is_own"), [(0, True), (1, False)])
def test_kproxys_own_requests_come_over_no_connection(connection: int, is_own: bool) -> None:
    assert TxnRequest("id", Producer(1, 0), connection, "c").is_own is is_own


def test_batches_have_partitions_and_bytes() -> None:
    assert places_of(BATCHES) == [("t", 0), ("u", 1)]
    assert (size_of(BATCHES), size_of([])) == (5, 0)
