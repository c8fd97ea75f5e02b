"""Free ports in a row, which kproxy's port ranges want.

Each process takes them from blocks of its own: a server that starts late does not find its port taken by another
test process. A UDP socket at the first number of a block, open until the process ends, says that the block is taken.
"""

import atexit
import socket
import threading
from contextlib import ExitStack
from typing import Final

_BLOCK: Final = 250
#: Above the port of a Spark Connect server, 15002, which a client that starts one cannot choose.
_FIRSTS: Final = range(15_250, 32_000, _BLOCK)
_lock: Final = threading.Lock()
_left = range(0)
"""What is left of this process's newest block."""


def free_ports(count: int) -> range:
    """Return neighbouring loopback ports that are free, below those that the system gives to clients.

    None is given twice in one process, or to two processes that run at the same time.

    :raises OSError: there are none; ``count`` may be 250 at most.
    """
    global _left
    with _lock:
        while count <= _BLOCK:
            while len(_left) >= count:
                ports, _left = _left[:count], _left[count:]
                if _are_free(ports):
                    return ports
            _left = _take_block()
    raise OSError(f"no {count} free ports in a row")


def _take_block() -> range:
    for first in _FIRSTS:
        mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            mark.bind(("127.0.0.1", first))
        except OSError:
            mark.close()
            continue
        atexit.register(mark.close)
        return range(first, first + _BLOCK)
    raise OSError("other processes have taken all ports")


def _are_free(ports: range) -> bool:
    with ExitStack() as held:
        try:
            for port in ports:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            return False
    return True
