"""The clients: raw blocking sockets that send frames built beforehand, so that they cost next to nothing."""

import itertools
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

Address = tuple[str, int]

_LENGTH = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_CORRELATION_AT = 8
#: Where a request has its client id, and before that its length.
_NAME_LENGTH_AT, _NAME_AT = 12, 14
_TIMEOUT_SECONDS = 60.0

_names = itertools.count()


class LoadError(RuntimeError):
    """The other side hung up, or answered with an error code."""


@dataclass(frozen=True)
class Transfer:
    """What one run moved: seconds of wall clock, payload bytes, records."""

    seconds: float
    payload_bytes: int
    records: int


class Connection:
    """One client connection: frames out, frames in, nothing is parsed."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None = None) -> None:
        """Connect, and go through the handshake if `tls` is given."""
        plain = socket.create_connection(address, timeout=_TIMEOUT_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(plain, server_hostname=address[0]) if tls else plain
        self._buffer = bytearray(1 << 10)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, frame: bytes | bytearray) -> None:
        """Send one whole frame, length prefix included."""
        self.socket.sendall(frame)

    def receive(self) -> memoryview:
        """The next response without its length prefix; valid until the next call."""
        self._fill(memoryview(self._buffer)[:4])
        (size,) = _LENGTH.unpack_from(self._buffer)
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        answer = memoryview(self._buffer)[:size]
        self._fill(answer)
        return answer

    def ask(self, frame: bytes | bytearray) -> memoryview:
        """Send one frame and wait for its response."""
        self.send(frame)
        return self.receive()

    def _fill(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            got = self.socket.recv_into(view[done:])
            if not got:
                raise LoadError("the connection was closed")
            done += got


@dataclass(frozen=True)
class Call:
    """A request built beforehand, and where its response says how it went.

    `error_at` is the position of the first partition's error code in a response without its length prefix: it is the
    same in every answer to the same request, so no answer has to be parsed. Those of `rows` partitions are `row_bytes`
    apart. `records` and `payload_bytes` are what one request (Produce) carries.
    """

    frame: bytearray
    error_at: int
    records: int = 0
    payload_bytes: int = 0
    rows: int = 1
    row_bytes: int = 0

    def check(self, answer: memoryview) -> None:
        """Raise LoadError unless all of the response's error codes are 0."""
        for row in range(self.rows):
            (code,) = _INT16.unpack_from(answer, self.error_at + row * self.row_bytes)
            if code:
                raise LoadError(f"error code {code}")


def produce(
    address: Address,
    calls: Sequence[Call],
    total_bytes: int,
    *,
    window: int,
    pause_seconds: float = 0.0,
    tls: ssl.SSLContext | None = None,
    renames: bool = True,
) -> Transfer:
    """Send `calls` in turn until `total_bytes` of payload are acknowledged, with at most `window` requests in flight.

    After each it waits for `pause_seconds`. Each time it is a producer of another name, unless `renames` is false: the
    same bytes of the same client soon after are a retry to kproxy, which searches the broker's log for them. The sink
    has none.
    """
    if renames:
        _rename(calls)
    mean_bytes = sum(call.payload_bytes for call in calls) // len(calls)
    count = max(1, total_bytes // mean_bytes)
    sent = [calls[number % len(calls)] for number in range(count)]
    with Connection(address, tls) as connection:
        calls[0].check(connection.ask(calls[0].frame))  # warm up: lanes, upstream connections
        began = time.perf_counter()
        for number in range(count + window):
            if number >= window:
                sent[number - window].check(connection.receive())
            if number < count:
                _LENGTH.pack_into(sent[number].frame, _CORRELATION_AT, number)
                connection.send(sent[number].frame)
                if pause_seconds:
                    time.sleep(pause_seconds)
        seconds = time.perf_counter() - began
    return Transfer(seconds, sum(call.payload_bytes for call in sent), sum(call.records for call in sent))


def _rename(calls: Sequence[Call]) -> None:
    """Give all requests one new client id, as long as theirs."""
    number = next(_names)
    for call in calls:
        (width,) = _INT16.unpack_from(call.frame, _NAME_LENGTH_AT)
        call.frame[_NAME_AT : _NAME_AT + width] = f"{number % 10**width:0{width}}".encode()


def fetch(
    address: Address,
    call: Call,
    total_bytes: int,
    *,
    entry_bytes: int,
    tls: ssl.SSLContext | None = None,
    hello: bytes = b"",
) -> Transfer:
    """Fetch the same offset, one request at a time as consumers do, until `total_bytes` have come.

    `entry_bytes` is the size of one record in the response: what divides bytes into records. `hello` is a request that
    begins the connection.
    """
    received = 0
    with Connection(address, tls) as connection:
        if hello:
            connection.ask(hello)
        call.check(connection.ask(call.frame))
        began = time.perf_counter()
        while received < total_bytes:
            answer = connection.ask(call.frame)
            call.check(answer)
            if len(answer) < entry_bytes:
                raise LoadError("an answer without records")
            received += len(answer)
        seconds = time.perf_counter() - began
    return Transfer(seconds, received, received // entry_bytes)


def ping(address: Address, call: Call, times: int) -> list[float]:
    """Seconds from request to answer, one request at a time, sorted."""
    taken = []
    with Connection(address) as connection:
        for _ in range(times // 10):
            connection.ask(call.frame)
        for _ in range(times):
            began = time.perf_counter()
            answer = connection.ask(call.frame)
            taken.append(time.perf_counter() - began)
            call.check(answer)
    return sorted(taken)


def quantile(sorted_values: Sequence[float], fraction: float) -> float:
    """The value below which `fraction` of the values lie (nearest rank)."""
    return sorted_values[min(len(sorted_values) - 1, int(fraction * len(sorted_values)))]


def push_until_blocked(
    addresses: Sequence[Address], frame: bytes, *, patience_seconds: float
) -> tuple[int, list[socket.socket]]:
    """Send frames on many connections, never reading, until none of them takes a byte for `patience_seconds`.

    Returns:
        The bytes taken and the sockets, still open: the caller closes them.
    """
    sockets = [socket.create_connection(address, timeout=_TIMEOUT_SECONDS) for address in addresses]
    for connection in sockets:
        connection.setblocking(False)
    sent = [0] * len(sockets)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < patience_seconds:
        before = sum(sent)
        for index, connection in enumerate(sockets):
            sent[index] += _send_some(connection, frame, sent[index] % len(frame))
        if sum(sent) > before:
            quiet_since = time.monotonic()
        else:
            time.sleep(0.05)
    return sum(sent), sockets


def _send_some(connection: socket.socket, frame: bytes, position: int) -> int:
    try:
        return connection.send(memoryview(frame)[position:])
    except BlockingIOError:
        return 0
    except OSError as error:
        raise LoadError(f"a producer was cut off: {error}") from error
