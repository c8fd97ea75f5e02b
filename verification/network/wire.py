"""A wire between two network namespaces: TUN devices, and a thread that forwards the packets that its line carries."""

import contextlib
import fcntl
import os
import select
import struct
import threading
import time
from collections.abc import Callable
from typing import Final, Self, TypeVar

from verification.network.line import Line, Way
from verification.network.namespace import Namespace

__all__ = ["CLIENT_ADDRESS", "SERVER_ADDRESS", "Wire"]

CLIENT_ADDRESS: Final = "198.18.0.2"
SERVER_ADDRESS: Final = "198.18.0.1"
"""Addresses of the range for benchmarks (RFC 2544), which no network routes; the namespaces have no other routes."""
_SETIFF: Final = 0x400454CA
_TUN_WITHOUT_INFO: Final = 0x0001 | 0x1000
_DEVICE: Final = "wire"
_MTU: Final = "1500"
_LONGEST_PACKET: Final = 65536
_AT_ONCE: Final = 64
"""Packets that are read in one turn at each end."""
_PATIENCE_S: Final = 10.0
_Result = TypeVar("_Result")


class Wire:
    """Connects the namespace of this thread (``SERVER_ADDRESS``) to another one (``CLIENT_ADDRESS``).

    :param line: what happens to the packets. After the wire has begun it is changed through :meth:`tell` only.
    """

    def __init__(self, clients: Namespace, line: Line | None = None) -> None:
        self._clients = clients
        self._line = line or Line()
        self._lock = threading.Lock()
        self._ends: dict[Way, int] = {}
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._forward, name="wire")

    def __enter__(self) -> Self:
        """:raises OSError: the devices cannot be made."""
        here = Namespace.of_this_thread()
        with here:
            for way, namespace, address in (
                (Way.RESPONSES, here, SERVER_ADDRESS),
                (Way.REQUESTS, self._clients, CLIENT_ADDRESS),
            ):
                self._ends[way] = namespace.call(_open_device)
                namespace.ip("address", "add", f"{address}/30", "dev", _DEVICE)
                namespace.ip("link", "set", _DEVICE, "mtu", _MTU, "up")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._wake()
        self._thread.join(_PATIENCE_S)
        for file in (*self._ends.values(), self._wake_read, self._wake_write):
            os.close(file)

    def tell(self, change: Callable[[Line], _Result]) -> _Result:
        """Let a function look at or change the line, between two packets."""
        with self._lock:
            result = change(self._line)
        self._wake()
        return result

    def reset(self, chosen: Callable[[Line], set[tuple[str, int]]] = lambda line: line.connections) -> int:
        """Reset connections at both ends, as a device in between does that has lost its state; return how many."""
        with self._lock:
            clients = chosen(self._line)
            for way, packet in self._line.reset(clients):
                self._write(way, packet)
        return len(clients)

    def wait(self, condition: Callable[[Line], bool], seconds: float) -> None:
        """Wait until the line is in some state.

        :raises TimeoutError: it is not within so many seconds.
        """
        deadline = time.monotonic() + seconds
        while not self.tell(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s")
            time.sleep(0.002)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _forward(self) -> None:
        poller = select.poll()
        for file in (*self._ends.values(), self._wake_read):
            poller.register(file, select.POLLIN)
        while not self._stopping:
            with self._lock:
                wait_s = self._line.wait_s(time.monotonic())
            poller.poll(None if wait_s is None else wait_s * 1000)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, _LONGEST_PACKET)
            with self._lock:
                for way, file in self._ends.items():
                    self._read(way, file)
                for way, packet in self._line.due(time.monotonic()):
                    self._write(way, packet)

    def _read(self, way: Way, file: int) -> None:
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(file, _LONGEST_PACKET)
            except BlockingIOError:
                return
            self._line.take(way, packet, time.monotonic())

    def _write(self, way: Way, packet: bytes) -> None:
        """Hand a packet to the kernel at the other end; it is lost if that has no room for it."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._ends[way.back], packet)


def _open_device() -> int:
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(file, _SETIFF, struct.pack("16sH22x", _DEVICE.encode(), _TUN_WITHOUT_INFO))
    except OSError:
        os.close(file)
        raise
    return file
