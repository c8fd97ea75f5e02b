"""Bytes in flight: one direction of a connection, with latency, a bounded buffer, and its faults.

TCP as far as it matters here: bytes arrive in order; what was written arrives even if the writer is killed; the end of
a stream arrives after its bytes; bytes for an end that is closed are answered by a reset. An end is never later than it
must be: a FIN that arrives long after the bytes is as good as a half-open connection, of which nobody can know.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

import trio

from verification.simulation.clock import VirtualClock

#: A kernel gives up a connection whose packets vanish after so many seconds (keep-alive).
GIVE_UP_SECONDS: Final = 30.0
_SPLIT: Final = 0.1
FIN: Final = "FIN"
RST: Final = "RST"


class Pipe:
    """One direction of a connection, from the writer's buffer to the reader's."""

    back: "Pipe"

    def __init__(self, clock: VirtualClock, number: int, rng: Random, latency: float, capacity: int) -> None:
        """``latency`` in seconds; at most ``capacity`` bytes are in flight or unread."""
        self._clock = clock
        self._number = number
        self._rng = rng
        self._latency = latency
        self._capacity = capacity
        self._queue: deque[tuple[float, bytes | str]] = deque()
        self._last = 0.0
        #: Bytes in flight are held up until then (trio's clock).
        self.stalled_until = 0.0
        self._vanishes = False
        self._cut: tuple[int, Callable[[], None]] | None = None
        #: Bytes that have arrived and are unread.
        self.inbox = bytearray()
        #: Bytes written that have not arrived; what a reset left of them when the writer learnt of it.
        self.on_way = 0
        #: Bytes written so far, and how many of them have arrived.
        self.written = self.arrived = 0
        self.never_arrived: int | None = None
        self.ended = self.reset = False
        #: Whether the reader has closed its end.
        self.gone = False
        self._over: Callable[[], None] | None = None
        self.readers = trio.lowlevel.ParkingLot()
        self.writers = trio.lowlevel.ParkingLot()

    def write(self, data: memoryview) -> int:
        """Takes what there is room for; how many bytes."""
        taken = min(len(data), self._capacity - self.on_way - len(self.inbox))
        if taken <= 0:
            return 0
        chunk = bytes(data[:taken])
        self.on_way += taken
        self.written += taken
        at = self._rng.randrange(1, taken) if taken > 1 and self._rng.random() < _SPLIT else taken
        for part in (chunk[:at], chunk[at:]):
            if part:
                self._send(part, self._latency * self._rng.uniform(0.7, 2.0))
        return taken

    def read(self, buffers: list[memoryview]) -> int:
        """Moves unread bytes into the buffers; how many."""
        total = 0
        for buffer in buffers:
            part = self.inbox[: len(buffer)]
            buffer[: len(part)] = part
            del self.inbox[: len(part)]
            total += len(part)
        self.writers.unpark_all()
        return total

    def end(self, how: str) -> None:
        """Sends FIN or RST after the bytes in flight, and at once if there are none."""
        if not self._queue:
            self.stalled_until = 0.0
        self._send(how, 0.0)

    @property
    def holds(self) -> bool:
        """Whether bytes in flight are held up."""
        return bool(self._queue) and trio.current_time() < self.stalled_until

    @property
    def last_arrival(self) -> float:
        """When the last that was written arrives, by trio's clock, unless a fault delays it later."""
        return max(self._last, self.stalled_until) if self._queue else self._last

    def when_over(self, tell: Callable[[], None]) -> None:
        """Calls ``tell`` when the end or a reset has arrived, or the reader has closed its end; at once if so."""
        self._over = tell
        self._report_over()

    def leave(self) -> None:
        """The reader closes its end."""
        self.gone = True
        self._report_over()

    def _report_over(self) -> None:
        if self._over is not None and (self.gone or self.ended or self.reset):
            self._over()
            self._over = None

    def stall(self, seconds: float) -> None:
        """Holds everything up for so long."""
        self.stalled_until = max(self.stalled_until, trio.current_time() + seconds)

    def vanish(self) -> None:
        """From now on nothing arrives, and no end gets an error."""
        self._vanishes = True

    def cut_after(self, size: int, action: Callable[[], None]) -> None:
        """Calls ``action`` when so many more bytes have arrived."""
        self._cut = (size, action)

    def break_now(self) -> None:
        """Makes the reader see a reset; bytes in flight are lost."""
        self._queue.clear()
        self._vanishes = True
        self._break()

    def _break(self) -> None:
        self.reset = True
        self._report_over()
        self.back.never_arrived = self.back.on_way
        self.readers.unpark_all()
        self.back.writers.unpark_all()

    def _send(self, what: bytes | str, delay: float) -> None:
        self._last = max(self._last, trio.current_time() + delay)
        self._queue.append((self._last, what))
        self._clock.at(self._last, self._number, self._arrive)

    def _arrive(self) -> None:
        now = trio.current_time()
        if now < self.stalled_until:
            self._clock.at(self.stalled_until, self._number, self._arrive)
            return
        while self._queue and self._queue[0][0] <= now:
            what = self._queue.popleft()[1]
            if not self._vanishes:
                self._take(what)

    def _take(self, what: bytes | str) -> None:
        if isinstance(what, str):
            if what == RST:
                self._break()
            else:
                self.ended = True
                self._report_over()
                self.readers.unpark_all()
        elif self.gone:
            self.back.end(RST)
        else:
            self._deliver(what)

    def _deliver(self, data: bytes) -> None:
        cut = None
        if self._cut is not None:
            size, action = self._cut
            data, cut = data[:size], action if len(data) >= size else None
            self._cut = (size - len(data), action)
        self.inbox += data
        self.on_way -= len(data)
        self.arrived += len(data)
        self.readers.unpark_all()
        if cut is not None:
            self._cut = None
            cut()
