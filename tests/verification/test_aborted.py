"""What a consumer passes over."""

from kproxy.codec._generated.fetch import FetchResponseAbortedTransaction
from kproxy.codec.batch import Record, build_batch, read_header
from kproxy.testing.fake_broker.stored_batches import marker_batch
from verification.aborted import Aborted


def at(offset: int, batch: bytearray) -> memoryview:
    batch[:8] = offset.to_bytes(8, "big")
    return memoryview(batch)


def data(offset: int, producer_id: int, *, is_transactional: bool = True) -> memoryview:
    rows = [Record(0, 0, None, b"v")]
    more = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": is_transactional}
    return at(offset, build_batch(rows, producer_id=producer_id, **more))


def marker(offset: int, producer_id: int, *, commits: bool) -> memoryview:
    return at(offset, marker_batch(producer_id, 0, commits, 0, 0))


def shown(batches: list[memoryview], rows: list[tuple[int, int]] | None) -> list[int]:
    aborted = Aborted(rows and [FetchResponseAbortedTransaction(*row) for row in rows])
    headers = [read_header(batch) for batch in batches]
    return [
        header.base_offset for header, batch in zip(headers, batches, strict=True) if not aborted.hides(header, batch)
    ]


def test_an_aborted_transaction_is_passed_over_up_to_its_marker() -> None:
    batches = [data(0, 7), data(1, 8), marker(2, 7, commits=False), data(3, 7), marker(4, 8, commits=True), data(5, 8)]
    assert shown(batches, [(7, 0)]) == [1, 3, 5]
    assert shown(batches, [(8, 1), (7, 0)]) == [3]
    assert shown(batches, None) == shown(batches, []) == [0, 1, 3, 5]


def test_one_that_began_before_the_answer_is_passed_over_too() -> None:
    assert shown([data(6, 7), marker(7, 7, commits=False), data(8, 7)], [(7, 0)]) == [8]


def test_what_is_in_no_transaction_is_shown() -> None:
    assert shown([data(0, 7), data(1, 7, is_transactional=False)], [(7, 0)]) == [1]
