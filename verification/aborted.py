"""What a consumer of committed data passes over, by the list of aborted transactions in each Fetch answer (KIP-98)."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from kproxy.codec._generated.fetch import FetchResponseAbortedTransaction
from kproxy.codec.batch import BatchHeader, iter_records

_LIMIT: Final = 100
_ABORT: Final = 0
#: The position of the type in a marker's key, after its version.
_TYPE: Final = slice(2, 4)


class Aborted:
    """Of one response, whose batches are asked about in order; as Kafka's ``CompletedFetch``."""

    def __init__(self, rows: Sequence[FetchResponseAbortedTransaction] | None) -> None:
        """``rows`` of the response; None: nothing is left out."""
        self._left = deque(sorted((row.first_offset, row.producer_id) for row in rows or ()))
        #: Producers in the midst of an aborted transaction.
        self._within: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether nothing of a batch is shown."""
        last = header.base_offset + header.last_offset_delta
        while self._left and self._left[0][0] <= last:
            self._within.add(self._left.popleft()[1])
        if header.is_control:
            if _aborts(batch):
                self._within.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._within


def _aborts(batch: memoryview) -> bool:
    (record,) = iter_records(batch, max_decompressed_bytes=_LIMIT, include_control=True)
    return record.key is not None and int.from_bytes(record.key[_TYPE], "big") == _ABORT
