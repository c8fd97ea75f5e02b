"""Requests of clients that know nothing of transactions: each error dooms the transaction, and each one is complete."""

from typing import Any

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.txn.procedures.captured import Captured, write_captured
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError

BATCH = ClientBatch("t", 0, memoryview(b""), 1, -1)


class Taking:
    """A transaction that notes in which order it is asked."""

    def __init__(self, error: TxnError | None = None) -> None:
        self.asked: list[str] = []
        self._error = error

    def came(self, *_: Any) -> None:
        self.asked.append("came")

    async def write(self, *_: Any, refused: bool, accepted: Any) -> list[Written]:
        self.asked.append("refused" if refused else "write")
        if self._error is not None:
            raise self._error
        return [Written(0, 7, -1)]

    def failed(self, why: str) -> None:
        self.asked.append("failed")

    def done(self) -> None:
        self.asked.append("done")


async def written(taking: Any, *batches: ClientBatch, refused: bool = False, before: trio.Event | None = None) -> Any:
    accepted, first = trio.Event(), trio.Event()
    first.set()

    async def read() -> Captured:
        taking.asked.append("read")
        return Captured(batches, refused)

    try:
        return await write_captured(taking, 1, 0, read, first if before is None else before, accepted)
    finally:
        assert accepted.is_set(), "the next request of the connection waits for ever"


async def test_a_request_is_written_and_complete() -> None:
    taking = Taking()
    assert await written(taking, BATCH) == [Written(0, 7, -1)]
    assert taking.asked == ["read", "came", "write", "done"]


async def test_a_request_with_a_refused_batch_is_written_as_refused() -> None:
    taking = Taking()
    await written(taking, refused=True)
    assert taking.asked == ["read", "came", "refused", "done"]


async def test_a_request_without_records_is_not_written() -> None:
    taking = Taking()
    assert await written(taking) == ()
    assert taking.asked == ["read", "came", "done"]


async def test_an_error_dooms_the_transaction_before_the_request_is_complete() -> None:
    taking = Taking(TxnError(ErrorCode.TRANSACTION_ABORTABLE, "doomed"))
    with pytest.raises(TxnError):
        await written(taking, BATCH)
    assert taking.asked == ["read", "came", "write", "failed", "done"]


async def test_a_request_waits_for_the_one_before(autojump_clock: trio.testing.MockClock) -> None:
    taking, before = Taking(), trio.Event()
    with trio.move_on_after(1):
        await written(taking, BATCH, before=before)
    assert taking.asked == ["failed", "done"]
