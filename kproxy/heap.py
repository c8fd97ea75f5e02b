"""The process's memory: what stays is left out of searches for garbage, and what was freed goes back to the system.

glibc keeps freed memory for the next use, and Python's collector has to find first what is in reference cycles.
"""

import ctypes
import gc


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
