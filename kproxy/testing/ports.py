"""Free ports in a row, which kproxy's port ranges want."""

import os
import socket
from contextlib import ExitStack
from typing import Final

_FIRST: Final = 15_000
_LAST: Final = 32_000
_taken: set[int] = set()


def free_ports(count: int) -> range:
    """Return neighbouring loopback ports that were free a moment ago, below those that the system gives to clients.

    None is given twice in one process.

    :raises OSError: there are none.
    """
    start = _FIRST + os.getpid() % 150 * 100
    for first in [*range(start, _LAST - count, count), *range(_FIRST, start, count)]:
        ports = range(first, first + count)
        if not _taken.isdisjoint(ports) or not _are_free(ports):
            continue
        _taken.update(ports)
        return ports
    raise OSError(f"no {count} free ports in a row")


def _are_free(ports: range) -> bool:
    with ExitStack() as held:
        try:
            for port in ports:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            return False
    return True
