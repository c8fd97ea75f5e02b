"""One blocking connection to one broker: any message in any version, or plain bytes."""

import select
import socket
import struct
from typing import Final, Self, TypeVar

from kproxy.budget import unbounded
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import Message, response_class

_MessageT = TypeVar("_MessageT", bound=Message)
PATIENCE_S: Final = 60.0


class RawConnection:
    """One connection to one broker, one request at a time.

    :param timeout: seconds to wait for the connection and for each response; then ``TimeoutError``.
    """

    def __init__(
        self, host: str, port: int, *, client_id: str | None = "kproxy-test", timeout: float = PATIENCE_S
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_id = 0

    def call(self, message: Message, version: int, answer: type[_MessageT] | None = None) -> _MessageT:
        """Send a request and return its response.

        :param answer: the class of the response, for the type checker; the right one is found without it.
        :raises ConnectionError: the broker closed the connection (as it does on versions it does not serve).
        """
        self.send(message, version)
        return self.receive(message, version, answer)

    def send(self, message: Message, version: int) -> None:
        """Send a request without waiting for its response."""
        self._correlation_id += 1
        self.send_bytes(encode_request(message, version, self._correlation_id, self._client_id))

    def receive(self, message: Message, version: int, answer: type[_MessageT] | None = None) -> _MessageT:
        """Return the next response, which must be that to ``message``.

        :raises ConnectionError: the broker closed the connection.
        """
        frame = self.receive_bytes()
        found = response_class(message.API_KEY)
        decoded = found.decode(frame, version, unbounded(), response_header_size(message.API_KEY, version, frame))
        if answer is not None and not isinstance(decoded, answer):
            raise TypeError(f"{answer.__name__} expected, {found.__name__} came")
        return decoded  # type: ignore[return-value]  # without ``answer`` the caller takes what comes

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_bytes(self) -> bytes:
        """Return the next frame without its length.

        :raises ConnectionError: the broker closed the connection.
        """
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def idle(self) -> bool:
        """Tell whether the connection is open with nothing to read, so that a new request makes sense."""
        if self._socket.fileno() == -1:
            return False
        poller = select.poll()  # unlike select(), it knows file descriptors above 1023
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)
