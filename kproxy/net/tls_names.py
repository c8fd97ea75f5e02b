"""Names that no client should ask for: Python prints a traceback to stderr for each name beyond ASCII."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silence_unreadable_names() -> Iterator[None]:
    """While the block lasts nothing is written to stderr where a client asks for a TLS name that is not ASCII.

    The handshake fails in any case and is logged and counted like any other. Any client could otherwise fill the
    log, for Python reports what it can't raise (here: bytes that are no name) to ``sys.unraisablehook``.
    """
    usual = sys.unraisablehook

    def hook(fault: "sys.UnraisableHookArgs") -> None:
        if not (isinstance(fault.exc_value, UnicodeDecodeError) and isinstance(fault.object, bytes)):
            usual(fault)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual
