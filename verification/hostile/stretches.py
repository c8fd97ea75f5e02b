"""How long the loop of a running kproxy works between two looks at its connections, in processor time of its thread.

Processor time, so that what other processes use of the machine is not taken for kproxy's. As a program it is kproxy,
with a file in which it keeps the longest stretch: ``python -m verification.hostile.stretches FILE run ...``.
"""

import mmap
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from kproxy.cli import main

_SECONDS: Final = struct.Struct("=d")


class LongestStretch:
    """The longest stretch of a process, in seconds, in memory that another process can read and set back."""

    def __init__(self, path: Path) -> None:
        """``path``: a file that both processes open; it is made if it is not there."""
        with path.open("ab+") as file:
            file.truncate(_SECONDS.size)
            self._shared = mmap.mmap(file.fileno(), _SECONDS.size)

    @property
    def seconds(self) -> float:
        """Since it was last set back."""
        found: float = _SECONDS.unpack(self._shared)[0]
        return found

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._shared[:] = _SECONDS.pack(value)


class Watch(trio.abc.Instrument):
    """Reports to ``longest`` each stretch of the loop that it is an instrument of."""

    def __init__(self, longest: LongestStretch, clock: Callable[[], float] = time.thread_time) -> None:
        """``clock``: the processor time of the calling thread, in seconds."""
        self._longest = longest
        self._clock = clock
        self._began: float | None = None

    def after_io_wait(self, timeout: float) -> None:
        """A stretch begins."""
        self._began = self._clock()

    def before_io_wait(self, timeout: float) -> None:
        """It ends. What came before the first wait is the start of the process."""
        if self._began is not None and (took := self._clock() - self._began) > self._longest.seconds:
            self._longest.seconds = took


if __name__ == "__main__":
    watch = Watch(LongestStretch(Path(sys.argv[1])))
    trio.run = partial(trio.run, instruments=[watch])  # type: ignore[assignment]
    sys.exit(main(sys.argv[2:]))
