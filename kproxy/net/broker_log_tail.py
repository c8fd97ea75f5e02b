"""Readers of one partition's log, piece by piece: a stretch of it, or its tail from the end backwards."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from kproxy.net.broker_log_batches import LAST, Batch, Depth, holds, split_batches, tail_of
from kproxy.net.broker_log_questions import ActiveProducer

#: A tail is read backwards in steps of offsets: the first, and how each grows and shrinks.
_FIRST_STEP: Final = 8
_GROWTH: Final = 4
#: Asked for at first, so that many partitions fit into one response; doubled each time.
_FIRST_BYTES: Final = 1 << 16
#: What a record takes in memory when it is compared, about.
_RECORD_BYTES: Final = 200
#: So few offsets on, another batch may come along.
_NEAR: Final = 1000

ReadRange: TypeAlias = tuple[int, int]
"""The offset to read from, and the most bytes."""


class Reader(Protocol):
    """Says what it wants of a log until it has enough."""

    @property
    def wish(self) -> ReadRange | None:
        """The next read; None: no more."""

    @property
    def may_wait(self) -> bool:
        """Whether what it wants may never come: then it does with what it has."""

    def take(self, data: bytes | memoryview) -> int:
        """Takes a record set read from the offset of the wish; the bytes of whole batches in it."""

    def cut(self, start: int) -> None:
        """Records that the log begins at ``start``."""


class LogRange:
    """The batches that overlap [first, end), and what comes along behind; up to ``max_bytes`` and a batch."""

    may_wait = False

    def __init__(self, first: int, end: int, max_bytes: int) -> None:
        """Nothing is read yet."""
        self.batches: list[Batch] = []
        self.following = first
        self.end = end
        self.room = max_bytes
        self._most = min(_FIRST_BYTES, max_bytes)

    @property
    def wish(self) -> ReadRange | None:
        """The next read; None: no more."""
        return (self.following, min(self._most, self.room)) if self.following < self.end and self.room > 0 else None

    def take(self, data: bytes | memoryview) -> int:
        """Takes a record set read from the offset of the wish; the bytes of whole batches in it."""
        found, self.following = split_batches(data, self.following)
        self.batches += found
        size = sum(len(batch.data) for batch in found)
        self.room -= size
        self._most *= 2
        return size

    def cut(self, start: int) -> None:
        """Records that the log begins at ``start``."""
        self.following = max(self.following, start)


class OffsetReads:
    """The batches at some offsets, as they come; those that lie close together share a read."""

    may_wait = False

    def __init__(self, offsets: Iterable[int], take: Callable[[Batch], None]) -> None:
        """``take`` gets each batch that holds one of the offsets, in the order of the log."""
        self._offsets = deque(sorted(offsets))
        self._give = take
        self._following = 0
        self._most = 1
        self._skip()

    @property
    def wish(self) -> ReadRange | None:
        """The next read; None: no more."""
        return (self._following, self._most) if self._offsets else None

    def take(self, data: bytes | memoryview) -> int:
        """Takes a record set read from the offset of the wish; the bytes of whole batches in it."""
        found, self._following = split_batches(data, self._following)
        size = sum(len(batch.data) for batch in found)
        for batch in found:
            self._pass(batch.header.base_offset)
            if self._offsets and self._offsets[0] < batch.next_offset:
                self._give(batch)
                self._pass(batch.next_offset)
        self._skip()
        return size

    def cut(self, start: int) -> None:
        """Records that the log begins at ``start``."""
        self._following = max(self._following, start)
        self._skip()

    def _pass(self, offset: int) -> None:
        while self._offsets and self._offsets[0] < offset:
            self._offsets.popleft()

    def _skip(self) -> None:
        """Continues at the next offset that was not read yet; reads more at once where the offset after it is near."""
        self._pass(self._following)
        if self._offsets:
            self._following = self._offsets[0]
            near = len(self._offsets) > 1 and self._offsets[1] <= self._following + _NEAR
            self._most = _FIRST_BYTES if near else 1


class Wanted(NamedTuple):
    """A producer whose last batches are searched for."""

    #: What the leader knows of it.
    row: ActiveProducer
    #: The epoch at whose sequence 0 its batches of interest begin; None if unknown.
    first_epoch: int | None = None
    #: None of them lies below this offset.
    floor: int = 0


class Tail:
    """The last batches of some producers, read from ``end`` backwards until no older one can count.

    Batches that the leader knows, but that can't be read yet, are waited for after ``end``.
    """

    def __init__(
        self,
        wanted: Sequence[Wanted],
        start: int,
        end: int,
        max_bytes: int,
        depth: Depth = LAST,
        *,
        together: int | None = None,
    ) -> None:
        """``max_bytes`` are looked through, about; what is found takes no more than so much memory, either.

        ``together``: the last batches of all of them are searched for, as if they were one, which writes under this id
        now. Only its own last batch is waited for: the others are before it.
        """
        self._wanted = wanted
        self._together = together
        self._depth = depth
        self._memory = max_bytes
        self._epochs: Mapping[int, int | None] = {each.row.producer_id: each.first_epoch for each in wanted}
        self._start = max(start, min((each.floor for each in wanted), default=end))
        self._end = self._low = end
        self._most = self._room = max_bytes
        self._step = _FIRST_STEP
        self._batches: list[Batch] = []
        #: The bytes did not suffice for the last batches.
        self.too_long = False
        self.may_wait = False
        self._window: LogRange | None = None
        self._next()

    @property
    def batches(self) -> list[Batch]:
        """The batches in the order of the log."""
        return tail_of(self._batches, self._epochs, self._depth, together=self._together is not None)[0]

    @property
    def wish(self) -> ReadRange | None:
        """The next read; None: no more."""
        return None if self._window is None else self._window.wish

    def cut(self, start: int) -> None:
        """Records that the log begins at ``start``."""
        self._start = max(self._start, start)
        if self._window is not None:
            self._window.cut(start)
            if self._window.wish is None:
                self._look()

    def take(self, data: bytes | memoryview) -> int:
        """Takes a record set read from the offset of the wish; the bytes of whole batches in it."""
        assert self._window is not None
        size = self._window.take(data)
        if self.may_wait:
            self._room -= size
            self._batches += self._own(self._window.batches)
            self._wait(self._window.following)
        elif self._window.wish is None:
            self._look()
        return size

    def _look(self) -> None:
        """Continues after a window that was read, as far as its bytes sufficed."""
        window = self._window
        assert window is not None
        if window.following < self._low and self._step > 1:
            self._step //= _FIRST_STEP  # too much for the bytes that are left: only its newest part counts
        elif window.following < self._low:
            self._room = 0
        else:
            self._room = window.room
            own = self._own([b for b in window.batches if b.header.base_offset < self._low])
            self._memory -= _RECORD_BYTES * sum(batch.header.record_count for batch in own)
            self._batches = own + self._batches
            first = max(self._start, self._low - max(1, self._step))
            self._low = min([first, *(batch.header.base_offset for batch in window.batches[:1])])
            fitting = self._room * (self._end - self._low) // (self._most - self._room + 1) // 2  # half of what may fit
            self._step = min(self._step * _GROWTH, max(1, fitting))
        self._next()

    def _own(self, batches: Sequence[Batch]) -> list[Batch]:
        return [batch for batch in batches if batch.header.producer_id in self._epochs]

    def _next(self) -> None:
        if self._is_enough():
            self._wait(self._end)
        elif self._room > 0:
            self._window = LogRange(max(self._start, self._low - max(1, self._step)), self._low, self._room)
        else:
            self._window, self.too_long = None, not self._has(LAST)

    def _is_enough(self) -> bool:
        return self._low <= self._start or self._has(self._depth) or (self._memory < 0 and self._has(LAST))

    def _has(self, depth: Depth) -> bool:
        """Whether all is found that is of interest."""
        above = {each.row.producer_id: each.first_epoch for each in self._wanted if each.floor < self._low}
        return tail_of(self._batches, above, depth, self._low, together=self._together is not None)[1]

    def _wait(self, end: int) -> None:
        rows = [each.row for each in self._wanted if self._together in (None, each.row.producer_id)]
        missing = any(not holds(self._batches, row.producer_id, row.epoch, row.last_sequence) for row in rows)
        self.may_wait = missing and self._room > 0
        self._window = LogRange(end, end + 1, self._room) if self.may_wait else None
