"""Ctrl-C and SIGTERM, for commands that run other programs and must stop them."""

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

_TERMINATED: Final = 128 + signal.SIGTERM
#: How long a signal may wait that arrives just before a call which waits, in seconds.
_LOOKS_EVERY: Final = 0.5


def end_on_signals() -> None:
    """Let SIGTERM and SIGINT raise, so that every `finally` on the way out stops what it started.

    A shell starts background jobs with SIGINT ignored; such a job ends on SIGINT, too.
    """
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for_interrupt(announce: Callable[[], None]) -> None:
    """Return on Ctrl-C. `announce` tells the user that the program waits; from then on Ctrl-C is the ordinary end."""
    try:
        announce()
        while True:  # signal.pause() would miss one that arrives just before it, and wait for another for ever
            time.sleep(_LOOKS_EVERY)
    except KeyboardInterrupt:
        return


def _terminate(_number: int, _frame: FrameType | None) -> None:
    sys.exit(_TERMINATED)
