"""When freed memory goes back to the system: glibc keeps freed buffers of up to 1 MiB for the next ones.

Python keeps pages in which objects were.

Closed connections are in reference cycles, so Python's collector has to find them first.
"""

from collections.abc import Callable
from typing import Final

from kproxy.heap import trim

#: A peak below this is not worth a look through the heap.
_PEAK_BYTES: Final = 4 << 20
#: Memory is given back when less than this part of the peak is in use.
_IN_USE: Final = 1 / 8
_PAUSE_SECONDS: Final = 2.0


class HeapKeeper:
    """Trims the heap after each peak of the bytes held, at most every 2 s."""

    def __init__(self, trim: Callable[[], None] = trim) -> None:
        """No peak yet."""
        self._trim = trim
        self._peak = 0
        self._trimmed_at = -_PAUSE_SECONDS

    def note(self, used: int) -> None:
        """Records what is held now, or was held for a time, in bytes."""
        if used > self._peak:
            self._peak = used

    def look(self, used: int, now: float) -> bool:
        """Whether the heap was trimmed at ``now``, in seconds. ``used``: bytes that are held now."""
        self.note(used)
        peak = self._peak
        if peak < _PEAK_BYTES or used > peak * _IN_USE or now - self._trimmed_at < _PAUSE_SECONDS:
            return False
        self._trimmed_at, self._peak = now, used
        self._trim()
        return True
