"""Whether a process of this host is alive, by the kernel's word: each kproxy listens at a socket that ends with it.

An abstract Unix socket (unix(7)) belongs to the network namespace and needs no file. A process of the same boot and
network namespace that is alive accepts a connection, even if it is stopped (SIGSTOP): the kernel does. All containers
of a pod have one network namespace, but a pid namespace each, so process ids would say nothing.
"""

import os
import socket
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final

import trio

from kproxy.dedup.instance_holder import Process

_ID_BYTES: Final = 16
_BACKLOG: Final = 8


class State(Enum):
    """What is known of a process."""

    ALIVE = auto()
    DEAD = auto()
    UNKNOWN = auto()
    """It runs, or ran, on another host, or in another network namespace."""


class Presence:
    """This process, as others see it."""

    def __init__(self, started_ms: int) -> None:
        """``started_ms``: when it began, in ms since 1970. Others see it from ``open`` on."""
        self._sock: socket.socket | None = None
        self.process = Process(os.urandom(_ID_BYTES), socket.gethostname(), os.getpid(), started_ms)

    def open(self) -> None:
        """Listens. Where there are no such sockets only the log tells others that this process is alive."""
        if self._sock is not None:
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind(_address(self.process.process_id))
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            return
        self._sock = sock
        boot_id, namespace = _place()
        self.process = self.process._replace(boot_id=boot_id, namespace=namespace)

    async def called(self) -> None:
        """Returns when another process has looked whether this one is alive; never where none can."""
        sock = self._sock
        try:
            if sock is None:
                await trio.sleep_forever()
            await trio.lowlevel.wait_readable(sock)
        except trio.ClosedResourceError:
            await trio.sleep_forever()  # this process ends
        else:
            with suppress(OSError):  # it did not wait
                sock.accept()[0].close()

    def state(self, other: Process) -> State:
        """Whether another process is alive; one that is learns that it was looked for."""
        here = self.process.boot_id, self.process.namespace
        if not all(here) or (other.boot_id, other.namespace) != here:
            return State.UNKNOWN
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            try:
                sock.connect(_address(other.process_id))
            except ConnectionRefusedError:
                return State.DEAD
            except BlockingIOError:
                return State.ALIVE  # more look for it than it accepts
            except OSError:
                return State.UNKNOWN
        return State.ALIVE

    def close(self) -> None:
        """Others see from now on that this process has ended."""
        if self._sock is not None:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()
            self._sock = None


def _address(process_id: bytes) -> str:
    return f"\0kproxy-{process_id.hex()}"


def _place() -> tuple[str, str]:
    """The boot and the network namespace; both are empty where the system does not say."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot_id, str(Path("/proc/self/ns/net").readlink())
    except OSError:
        return "", ""
