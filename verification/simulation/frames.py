"""Requests and answers of a model client over a connection."""

from kproxy.budget import unbounded
from kproxy.codec.frame import FrameSplitter
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import Message, response_class
from verification.simulation.virtual_io import VirtualIO

_READ = 1 << 14
_LARGEST = 1 << 24


class FrameIO:
    """Sends requests of any version, and takes the responses."""

    def __init__(self, io: VirtualIO, client_id: str) -> None:
        """Takes over a connection."""
        self._io = io
        self._client_id = client_id
        self._splitter = FrameSplitter(_LARGEST)
        self._frames: list[bytearray] = []
        self._sent: dict[int, tuple[int, int]] = {}
        self._buffer = memoryview(bytearray(_READ))
        #: The correlation id of the next request.
        self.next_id = 1

    async def send(self, message: Message, version: int, *, silent: bool = False) -> None:
        """Writes a request; ``silent``: there will be no response. OSError if the connection is broken."""
        number = self.next_id
        self.next_id += 1
        if not silent:
            self._sent[number] = (message.API_KEY, version)
        await self._io.send_all([encode_request(message, version, number, self._client_id)])

    async def receive(self) -> tuple[int, Message]:
        """The next response and its correlation id. OSError if the connection is broken, EOFError at its end."""
        while not self._frames:
            count = self._io.receive_now([self._buffer])
            if count is None:
                await self._io.readable()
            elif count == 0:
                raise EOFError("the connection ended")
            else:
                self._frames = self._splitter.feed(self._buffer[:count])
        frame = memoryview(self._frames.pop(0))[4:]
        number = int.from_bytes(frame[:4], "big")
        api_key, version = self._sent.pop(number)
        body = frame[response_header_size(api_key, version, frame) :]
        return number, response_class(api_key).decode(body, version, unbounded())

    @property
    def has_answer(self) -> bool:
        """Whether a response was read from the connection together with the one before it."""
        return bool(self._frames)

    @property
    def ended(self) -> bool:
        """Whether the other end has closed it."""
        return self._io.peer_closed()

    def close(self) -> None:
        """Closes the connection."""
        self._io.close()
