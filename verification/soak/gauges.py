"""What only the process itself can count; as a program it is kproxy, which writes these counts to a file.

``python -m verification.soak.gauges FILE run ...``. That takes some 100 µs each second.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from kproxy.cli import main

#: Between two counts.
PAUSE_SECONDS: Final = 1.0
_FIELDS: Final = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keep"


@dataclass(frozen=True, slots=True)
class Gauges:
    """Counts of one moment."""

    #: Of trio.
    tasks: int
    #: Python's small objects, about.
    blocks: int
    #: Of the C library: bytes in use, and bytes that it keeps for the next use.
    heap_used: int = 0
    heap_free: int = 0


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def heap() -> tuple[int, int]:
    """Bytes of the C library's heap in use, large blocks included, and free; zeros where it does not say."""
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):  # not glibc, or an old one
        return 0, 0
    function.restype = _Mallinfo
    found = function()
    return found.uordblks + found.hblkhd, found.fordblks


def read(path: Path) -> Gauges:
    """The counts that were written last."""
    return Gauges(**json.loads(path.read_text()))


class Watch(trio.abc.Instrument):
    """Writes the counts of the loop that it is an instrument of."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """``path``: the file, which is replaced each time; ``clock``: seconds."""
        self._path = path
        self._clock = clock
        self._due = 0.0

    def before_io_wait(self, timeout: float) -> None:
        """Once a second."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + PAUSE_SECONDS
        gauges = Gauges(trio.lowlevel.current_statistics().tasks_living, sys.getallocatedblocks(), *heap())
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(gauges)))
        fresh.replace(self._path)


if __name__ == "__main__":
    trio.run = partial(trio.run, instruments=[Watch(Path(sys.argv[1]))])  # type: ignore[assignment]
    sys.exit(main(sys.argv[2:]))
