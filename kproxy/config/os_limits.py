"""What the operating system has to allow for the options."""

from typing import Final

#: Open files beside clients: listeners, connections of kproxy's own, logs.
_OTHER_FILES: Final = 1_000


def open_files_for(connections: int) -> int:
    """Open files that it takes for so many clients, each with its broker."""
    return 2 * connections + _OTHER_FILES
