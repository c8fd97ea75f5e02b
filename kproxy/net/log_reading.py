"""Batches that were read from brokers' logs, as digests: a few at once, all others beside the loop."""

from collections.abc import Callable, Sequence

import trio

from kproxy.budget import AT_ONCE_BYTES, AT_ONCE_STEPS, READ_RECORD_STEPS, RECORD_SET_BYTES_IN_STEP, is_long
from kproxy.codec.batch import read_header
from kproxy.codec.records import DecompressionLimit
from kproxy.dedup.digest import Digests
from kproxy.proxy.retries import digests_at

#: Takes the records of a batch: their digests and offsets.
Done = Callable[[Digests, Sequence[int]], None]


class LogReading:
    """Of a response of a broker as much is read at once as of a request; the rest waits for ``finish``."""

    def __init__(self, max_decompressed_bytes: int, limiter: trio.CapacityLimiter, *, as_sent: bool = False) -> None:
        """``limiter`` bounds how much is read at a time, of all that share it.

        ``as_sent``: with the timestamps that clients have sent, also where the topic has LogAppendTime.
        """
        self._max_bytes = max_decompressed_bytes
        self._limiter = limiter
        self._as_sent = as_sent
        self._left = AT_ONCE_STEPS
        self._long: list[tuple[bytes, Done]] = []

    def take(self, data: bytes, done: Done) -> None:
        """Reads a whole batch of format v2, now or in ``finish``."""
        self._left -= max(read_header(data).record_count, 1) * READ_RECORD_STEPS
        if self._left >= 0 and not is_long(len(data) // RECORD_SET_BYTES_IN_STEP):
            try:
                records = digests_at(data, min(self._max_bytes, AT_ONCE_BYTES), as_sent=self._as_sent)
            except DecompressionLimit:
                pass
            else:
                done(*records)
                return
        self._long.append((data, done))

    async def finish(self) -> None:
        """Reads what is left."""
        self._left = AT_ONCE_STEPS
        while self._long:
            data, done = self._long.pop(0)
            done(*await trio.to_thread.run_sync(self._read, data, limiter=self._limiter))

    def _read(self, data: bytes) -> tuple[Digests, Sequence[int]]:
        try:
            return digests_at(data, self._max_bytes, as_sent=self._as_sent)
        except DecompressionLimit:
            return Digests(), ()
