"""Ctrl-C and SIGTERM, for commands that run other programs and must stop them."""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

_TERMINATED: Final = 128 + signal.SIGTERM


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
        signal.pause()
    except KeyboardInterrupt:
        return


def _terminate(_number: int, _frame: FrameType | None) -> None:
    sys.exit(_TERMINATED)
