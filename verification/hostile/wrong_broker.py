"""A broker that answers some requests with what an attack has prepared; all others a fake broker answers."""

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Final, Self

_HOST: Final = "127.0.0.1"
_HEADER: Final = struct.Struct(">hhi")
_ADDRESS: Final = _HOST.encode()

#: What takes the place of a response: the frame for a version and a correlation id.
Wrong = Callable[[int, int], bytes]


class WrongBroker:
    """Relays to a fake broker, in threads; clients that come through it are named its own port for that broker."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        """``upstream``: host and port of the fake broker."""
        #: By API key, what is answered in place of the broker's response.
        self.wrong: dict[int, Wrong] = {}
        #: Responses that were wrong, so far.
        self.count = 0
        self._upstream = upstream
        self._listener = socket.create_server((_HOST, 0), backlog=256)
        self._port: int = self._listener.getsockname()[1]
        self.address = f"{_HOST}:{self._port}"
        self._open: set[socket.socket] = set()
        self._lock = Lock()

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.end_all()

    def end_all(self) -> None:
        """Ends all connections: kproxy has to make new ones."""
        with self._lock:
            ended, self._open = self._open, set()
        for sock in ended:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, suppress(OSError), socket.create_connection(self._upstream) as upstream:
            with self._lock:
                self._open |= {sock, upstream}
            try:
                with sock.makefile("rb") as requests, upstream.makefile("rb") as answers:
                    while frame := _frame(requests.read):
                        sock.sendall(self._answer(frame, upstream, answers.read))
            finally:
                with self._lock:
                    self._open -= {sock, upstream}

    def _answer(self, frame: bytes, upstream: socket.socket, read: Callable[[int], bytes]) -> bytes:
        api_key, version, correlation_id = _HEADER.unpack_from(frame, 4)
        if (wrong := self.wrong.get(api_key)) is not None:
            self.count += 1
            return wrong(version, correlation_id)
        upstream.sendall(frame)
        named = _ADDRESS + struct.pack(">i", self._upstream[1])
        return _frame(read).replace(named, _ADDRESS + struct.pack(">i", self._port))


def _frame(read: Callable[[int], bytes]) -> bytes:
    """The next frame, prefix included; empty if the connection has ended."""
    size = read(4)
    return size + read(int.from_bytes(size, "big")) if len(size) == 4 else b""
