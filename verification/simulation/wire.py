"""Bytes in flight: one direction of a connection, with latency, a bounded buffer, and its faults.

TCP as far as it matters here: bytes arrive in order; what was written arrives even if the writer is killed; the end of
a stream arrives after its bytes; bytes for an end that is closed are answered by a reset; acknowledgements take a time
of their own (``tcp``). The end of a stream is not seen before there is room for all bytes before it. While a route is
cut packets are lost. Bytes and a FIN are sent again, later and later; a reset is not. Otherwise an end is never later
than it must be: a FIN that arrives long after the bytes is as good as a half-open connection.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

import trio

from verification.simulation.clock import VirtualClock
from verification.simulation.tcp import AckHabits, Acknowledgements, retransmission

#: Something between the ends resets a connection whose packets vanish after so many seconds.
GIVE_UP_SECONDS: Final = 30.0
_SPLIT: Final = 0.1
FIN: Final = "FIN"
RST: Final = "RST"


class Pipe:
    """One direction of a connection, from the writer's buffer to the reader's."""

    back: "Pipe"

    def __init__(
        self,
        clock: VirtualClock,
        number: int,
        rng: Random,
        latency: float,
        capacity: int,
        acks: Acknowledgements | None = None,
    ) -> None:
        """``latency`` in seconds. At most ``capacity`` bytes are in flight or unread, and half of that acknowledged."""
        self._clock = clock
        self._number = number
        self._rng = rng
        self.latency = latency
        self._capacity = capacity
        self._window = capacity // 2
        self._acks = acks or Acknowledgements(rng, AckHabits((0.0,), 0.0))
        self._queue: deque[tuple[float, bytes | str]] = deque()
        self._last = 0.0
        #: Bytes in flight are held up until then (trio's clock).
        self.stalled_until = 0.0
        #: Packets are lost until then (trio's clock).
        self.blocked_until = 0.0
        self._vanishes = False
        self._cut: tuple[int, Callable[[], None]] | None = None
        #: Bytes that have arrived and are unread.
        self.inbox = bytearray()
        #: Since when the reader could not see that nothing is there, and when it had taken all again (trio's clock), in
        #: turn. It sees it while it waits for bytes, and otherwise when it has taken all.
        self._filled: list[float] = []
        self._emptied: list[float] = []
        #: Bytes written that have not arrived.
        self.on_way = 0
        #: Bytes written so far, and how many of them have arrived.
        self.written = self.arrived = 0
        #: When something arrived last (trio's clock).
        self.heard_at = 0.0
        #: Bytes that were not acknowledged when a reset came.
        self.never_acknowledged: int | None = None
        self.ended = self.reset = False
        #: Whether the FIN is held up: the reader's kernel has no room for bytes before it.
        self.end_waits = False
        #: Whether the reader has closed its end.
        self.gone = False
        self._over: Callable[[], None] | None = None
        #: Called when bytes are written.
        self.on_write: Callable[[], None] | None = None
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
        self._acks.sent(trio.current_time(), self.written)
        at = self._rng.randrange(1, taken) if taken > 1 and self._rng.random() < _SPLIT else taken
        for part in (chunk[:at], chunk[at:]):
            if part:
                self._send(part, self.latency * self._rng.uniform(0.7, 2.0))
        if self.on_write is not None:
            self.on_write()
        return taken

    def read(self, buffers: list[memoryview]) -> int:
        """Moves unread bytes into the buffers; how many."""
        was_full = len(self.inbox) > self._window
        total = 0
        for buffer in buffers:
            part = self.inbox[: len(buffer)]
            buffer[: len(part)] = part
            del self.inbox[: len(part)]
            total += len(part)
        if total and not self.inbox:
            self._emptied.append(trio.current_time())
        if was_full:
            self._acknowledge(0.0)
            if self.end_waits and len(self.inbox) <= self._window:
                self._finish()
        self.writers.unpark_all()
        return total

    def unread_since(self, at: float) -> float:
        """The time since which the reader could not see, until ``at``, that nothing is there; else ``at``."""
        times = bisect_right(self._filled, at)
        if not times or (times <= len(self._emptied) and self._emptied[times - 1] < at):
            return at
        return self._filled[times - 1]

    def end(self, how: str) -> None:
        """Sends FIN or RST after the bytes in flight: it is under way for as long as bytes are, at the least."""
        if not self._queue and not self.is_blocked:
            self.stalled_until = 0.0
        if how == RST and self.is_blocked:
            return
        self._send(how, self.latency)

    # -- acknowledgements

    @property
    def unacknowledged(self) -> int:
        """Bytes written of which the writer's kernel does not know that they arrived."""
        if self.never_acknowledged is not None:
            return self.never_acknowledged
        self._settle()
        return self.written - self._acks.position

    @property
    def waiting_since(self) -> float | None:
        """The time since which bytes wait to be acknowledged (``Acknowledgements.waiting_since``); None: none do."""
        self._settle()
        return self._acks.waiting_since

    @property
    def answered_at(self) -> float:
        """The time of the last sign of the reader's kernel: an acknowledgement or bytes (trio's clock)."""
        self._settle()
        return max(self._acks.progress_at, self.back.heard_at)

    def _first_sent_at(self) -> float:
        since = self.waiting_since
        return trio.current_time() if since is None else since

    def _settle(self) -> None:
        now = trio.current_time()
        if now >= self.back.stalled_until:
            self._acks.settle(now)

    @property
    def _readable_to(self) -> int:
        """The position up to which the reader's kernel has room."""
        return self.arrived - max(0, len(self.inbox) - self._window)

    @property
    def _round_trip(self) -> float:
        return self.latency + self.back.latency

    def _acknowledge(self, delay: float) -> None:
        now, back = trio.current_time(), self.back
        at = now + delay + back.latency
        if at < back.blocked_until:  # it is lost; the bytes are sent again, and acknowledged again
            at = retransmission(self._first_sent_at(), self._round_trip, back.blocked_until) + self._round_trip
        self._acks.comes(at, self._readable_to)

    # -- faults

    @property
    def is_blocked(self) -> bool:
        """Whether packets are lost now."""
        return trio.current_time() < self.blocked_until

    @property
    def held_until(self) -> float:
        """The time until which (trio's clock) something in flight is held up or lost."""
        return max(self.stalled_until, self.blocked_until)

    @property
    def holds(self) -> bool:
        """Whether bytes in flight are held up."""
        return bool(self._queue) and trio.current_time() < self.stalled_until

    @property
    def last_arrival(self) -> float:
        """The arrival of the last bytes that were written, by trio's clock, unless a fault delays it later."""
        return max(self._last, self.stalled_until) if self._queue else self._last

    @property
    def has_end(self) -> bool:
        """Whether the end is in flight."""
        return bool(self._queue) and isinstance(self._queue[-1][1], str)

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
        self.back._settle()
        self.stalled_until = max(self.stalled_until, trio.current_time() + seconds)

    def block(self, seconds: float) -> None:
        """Loses every packet for so long; what is lost is sent again when its writer's kernel next tries."""
        self._settle()
        self.back._settle()
        self.blocked_until = max(self.blocked_until, trio.current_time() + seconds)
        self.back._acks.lose()
        if self._queue:
            self._send_again(self._first_sent_at())
        if self.back.arrived > self.back._acks.position:
            self.back._acknowledge(0.0)

    def _send_again(self, since: float) -> None:
        self.stalled_until = max(self.stalled_until, retransmission(since, self._round_trip, self.blocked_until))

    def vanish(self) -> None:
        """Ends the arrival of bytes; no end gets an error."""
        self.back._settle()
        self.back._acks.lose()
        self._vanishes = True

    def cut_after(self, size: int, action: Callable[[], None]) -> None:
        """Calls ``action`` when so many more bytes have arrived."""
        self._cut = (size, action)

    def break_now(self) -> None:
        """Makes the reader see a reset; bytes in flight are lost."""
        self.back._settle()
        self.give_up()
        self._vanishes = True
        self._break()

    def give_up(self) -> None:
        """Bytes in flight are lost: the writer's kernel does not send them again."""
        self._queue.clear()

    def time_out(self) -> None:
        """The reader's kernel gives the connection up, and tells nobody."""
        self._break()

    def _break(self) -> None:
        self.back.never_acknowledged = self.back.unacknowledged
        self.reset = True
        self._report_over()
        self.readers.unpark_all()
        self.back.writers.unpark_all()

    def _send(self, what: bytes | str, delay: float) -> None:
        now = trio.current_time()
        if now < self.blocked_until and self.stalled_until < self.blocked_until:
            self._send_again(now)
        self._last = max(self._last, now + delay)
        self._queue.append((self._last, what))
        self._clock.at(self._last, self._number, self._arrive)
        back = self.back
        if what is not RST and back.arrived > back._acks.position:
            back._acks.comes(max(self._last, self.stalled_until), back._readable_to)

    def _arrive(self) -> None:
        now = trio.current_time()
        if now < self.stalled_until:
            self._clock.at(self.stalled_until, self._number, self._arrive)
            return
        while self._queue and self._queue[0][0] <= now:
            what = self._queue.popleft()[1]
            if not self._vanishes:
                self.heard_at = now
                self._take(what)

    def _take(self, what: bytes | str) -> None:
        if isinstance(what, str):
            if what == RST:
                self._break()
            elif len(self.inbox) > self._window:
                self.end_waits = True
            else:
                self._finish()
        elif self.gone or self.reset:
            self.back.end(RST)
        else:
            self._deliver(what)

    def _finish(self) -> None:
        self.end_waits, self.ended = False, True
        self._report_over()
        self.readers.unpark_all()

    def _deliver(self, data: bytes) -> None:
        cut = None
        if self._cut is not None:
            size, action = self._cut
            data, cut = data[:size], action if len(data) >= size else None
            self._cut = (size - len(data), action)
        if data and not self.inbox:
            emptied = self._emptied[-1] if self._emptied else 0.0
            self._filled.append(trio.current_time() if self.readers else emptied)
        self.inbox += data
        self.on_way -= len(data)
        self.arrived += len(data)
        self._acknowledge(self._acks.delay(self._round_trip))
        self.readers.unpark_all()
        if cut is not None:
            self._cut = None
            cut()
