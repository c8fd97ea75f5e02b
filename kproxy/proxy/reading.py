"""The records of one Produce request that has to be compared: read at once where that is short, else beside the loop.

Of one request as many records are read as its budget has steps for: 100,000. What is beyond is written as new.
"""

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from kproxy.budget import READ_RECORD_STEPS, RECORD_SET_BYTES_IN_STEP, RequestBudget, TooManySteps, UsedUp, Work
from kproxy.codec.batch import HEADER_SIZE, read_header
from kproxy.dedup.batch_records import BatchRecords, read_batch
from kproxy.errors import RemoteProtocolError

#: A batch, and when it came if it was converted then (``read_batch``).
Unread: TypeAlias = tuple[memoryview, int | None]


class Reading(Work[Sequence[BatchRecords | None]]):
    """All batches of one request, and of each one its records once they are read."""

    __slots__ = ()

    def __init__(self, batches: Sequence[Unread], budget: RequestBudget) -> None:
        size = sum(len(data) for data, _ in batches)
        super().__init__(budget, partial(_read, batches), size // RECORD_SET_BYTES_IN_STEP)

    def of(self, number: int) -> BatchRecords | None:
        """The records of one batch, none if it is damaged; None: the request has more than is compared."""
        return self.found[number]


def _read(batches: Sequence[Unread], budget: RequestBudget) -> Sequence[BatchRecords | None]:
    return [_within(budget, data, arrival_ms) for data, arrival_ms in batches]


def _within(budget: RequestBudget, data: memoryview, arrival_ms: int | None) -> BatchRecords | None:
    """The records of a batch; None if ``budget`` does not suffice, and is the whole one."""
    if len(data) < HEADER_SIZE:
        return BatchRecords()
    try:
        count = read_header(data).record_count
    except RemoteProtocolError:
        return BatchRecords()
    try:
        return _taken(budget, data, arrival_ms, count)
    except UsedUp:
        if budget.is_part:
            raise
        return None


def _taken(budget: RequestBudget, data: memoryview, arrival_ms: int | None, count: int) -> BatchRecords:
    if count * READ_RECORD_STEPS > budget.steps:
        raise TooManySteps("a request with too many records")
    found = read_batch(data, arrival_ms=arrival_ms, max_decompressed_bytes=budget.bytes)
    budget.take_steps(count * READ_RECORD_STEPS)
    budget.take_bytes(found.size)
    return found
