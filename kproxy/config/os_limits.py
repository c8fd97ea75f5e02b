"""Limits of the operating system that the options need."""

from typing import Final

#: Open files beside clients: listeners, connections of kproxy's own, logs.
_OTHER_FILES: Final = 1_000


def open_files_for(connections: int) -> int:
    """Open files needed for that many clients, each with a connection to a broker."""
    return 2 * connections + _OTHER_FILES
