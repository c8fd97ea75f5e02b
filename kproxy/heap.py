"""The process's memory: what stays is left out of searches for garbage, and what was freed goes back to the system.

glibc keeps freed memory for the next use, and Python's collector has to find first what is in reference cycles.

A large buffer that is freed makes glibc take later ones, up to its size and at most 32 MiB, from the heap, too. Small
objects that stay may then lie between them, and keep what was freed around them. Buffers of 1 MiB and more get pages
of their own here, always. Smaller ones would cost more processor time than the memory is worth (bench/README.md).
"""

import ctypes
import gc
import os
from typing import Final

#: Numbers of ``mallopt`` in glibc's malloc.h, and their values. Free memory at the end of the heap is kept up to 4 MiB:
#: to get the same pages again and again takes time. Threads that convert take from the same heap: they need no second
#: one, since the interpreter's lock lets one of them work at a time.
_MALLOPT: Final = ((-3, 1 << 20), (-1, 4 << 20), (-8, 1))  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX
#: Where one of these is set, the operator has decided how glibc keeps memory.
_CHOSEN: Final = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


def keep_level() -> None:
    """Called once, before there are clients: large buffers do not take part in the heap, where glibc has it."""
    if any(name in os.environ for name in _CHOSEN):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    for number, value in _MALLOPT:
        mallopt(number, value)


def settle() -> None:
    """Called once, when the process has started: what is there stays, so that collections need not look at it."""
    trim()
    gc.freeze()


def trim() -> None:
    """Frees what is in reference cycles, and gives free pages of the heap back where the C library can do that."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # not glibc
        return
