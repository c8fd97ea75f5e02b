"""One blocking connection to a broker or to kproxy, for Spark's processes, which know nothing of trio.

Plain sockets, one request at a time, every wait bounded. The version of a request is the newest that both sides know,
as ApiVersions (KIP-35, KIP-511) tells when the connection is opened. No TLS and no SASL yet.
"""

import socket
from struct import Struct
from types import TracebackType
from typing import Final, Self, TypeVar

import kproxy
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import APIS, ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.routing import Address
from kproxy.spark.spark_errors import KafkaError

_MessageT = TypeVar("_MessageT", bound=Message)
_I32: Final = Struct(">i")
_CORRELATION_AT: Final = 4
_SOFTWARE: Final = "kproxy-spark"
_ASK_VERSIONS: Final = (3, 0)
_UNSUPPORTED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)
#: An answer of more than this is damage, or a batch too large for a worker's memory.
MOST_ANSWER_BYTES: Final = 160 << 20
_STEP_BYTES: Final = 1 << 20


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class Connection:
    """An open connection; close it, or use it as a context manager.

    After any error it is closed, as nobody knows what comes next on it.
    """

    def __init__(self, address: Address, *, client_id: str, timeout_s: float) -> None:
        """Connects and asks for the versions; ``timeout_s`` bounds each wait. Raises KafkaError."""
        self._address = address
        self._client_id = client_id
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except OSError as error:
            raise KafkaError(f"cannot connect to {address}: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._versions = self._ask_versions()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> Address:
        """The other end."""
        return self._address

    def version(self, message: type[Message], oldest: int, newest: int) -> int:
        """The newest version from ``oldest`` to ``newest`` that the other side serves; KafkaError if there is none."""
        least, most = self._versions.get(message.API_KEY, (0, -1))
        found = min(newest, most)
        if found < max(oldest, least):
            name = APIS[message.API_KEY][0]
            served = f"versions {least} to {most}" if most >= 0 else "no version"
            raise KafkaError(f"{self._address} serves {served} of {name}; {oldest} to {newest} would do")
        return found

    def call(self, request: Message, version: int, answer: type[_MessageT]) -> _MessageT:
        """Sends a request and waits for its answer. Raises KafkaError."""
        self.send(request, version)
        return self.receive(version, answer)

    def send(self, request: Message, version: int) -> None:
        """Sends a request; its answer is to be received before the next one is sent. Raises KafkaError."""
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, self._client_id)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise KafkaError(f"cannot send to {self._address}: {error}") from error

    def receive(self, version: int, answer: type[_MessageT]) -> _MessageT:
        """The answer to what was sent last; its records are views of one buffer. Raises KafkaError."""
        frame = self._frame()
        try:
            (correlation_id,) = _I32.unpack_from(frame)
            if correlation_id != self._correlation_id:
                raise RemoteProtocolError("it answers another request")
            if answer is ApiVersionsResponse and frame[_CORRELATION_AT : _CORRELATION_AT + 2] == _UNSUPPORTED:
                version = 0  # this error comes in the oldest shape, whatever was asked for
            return answer.decode(frame, version, response_header_size(answer.API_KEY, version, frame))
        except RemoteProtocolError as error:
            self.close()
            raise KafkaError(f"{self._address} sent what is no {answer.__name__}: {error}") from error

    def close(self) -> None:
        """Closes the connection; harmless when called again."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=kproxy.__version__)
        for version in _ASK_VERSIONS:
            response = self.call(request, version, ApiVersionsResponse)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        if response.error_code:
            raise KafkaError(f"{self._address} answers ApiVersions with {error_name(response.error_code)}")
        return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    def _frame(self) -> memoryview:
        (size,) = _I32.unpack(self._exactly(_I32.size))
        if not _CORRELATION_AT <= size <= MOST_ANSWER_BYTES:
            self.close()
            raise KafkaError(f"{self._address} sent an answer of {size} bytes; at most {MOST_ANSWER_BYTES} can be read")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        """``size`` bytes; room is made as they come, so that a length alone costs nothing."""
        data = bytearray(min(size, _STEP_BYTES))
        filled = 0
        try:
            while filled < size:
                if filled == len(data):
                    data += bytes(min(size - filled, max(filled, _STEP_BYTES)))
                with memoryview(data) as room:
                    count = self._socket.recv_into(room[filled:])
                if not count:
                    raise ConnectionError("it ended the connection")
                filled += count
        except OSError as error:
            self.close()
            raise KafkaError(f"no answer from {self._address}: {error}") from error
        return memoryview(data)
