"""What begins a client's connection: the header of a load balancer, and logins by password, by SCRAM and by token."""

from collections.abc import Iterator
from typing import Any, Final

from kproxy.errors import RemoteProtocolError
from kproxy.net.balanced_io import BalancedIO
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused
from kproxy.proxy.broker_login.scram_client import SaltedPassword, Scram
from kproxy.proxy.client_login.client_mechanisms import MECHANISMS, begin
from kproxy.proxy.client_login.steps import Accepted, Challenge, PasswordCheck, Refused, TokenCheck
from kproxy.proxy.client_login.stored_credentials import SCRAM_HASHES, Credentials, make_verifier
from kproxy.proxy.distinguished_name import subject_of
from kproxy.proxy.senders import sender_of
from verification.fuzz.choices import Choices, piece
from verification.fuzz.target import Bound, Target, expect

# -- the PROXY protocol

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_MOST_PORT: Final = 65_535


class _Fed(BalancedIO):
    """A connection on which all bytes are there at once."""

    __slots__ = ("left",)

    def __init__(self, data: bytes) -> None:
        self._ends_told = None
        self.peer_host = "balancer"
        self.left = data

    def receive_now(self, buffers: Any) -> int:
        [room] = buffers
        count = min(len(room), len(self.left))
        room[:count], self.left = self.left[:count], self.left[count:]
        return count


def check_balanced(data: bytes) -> None:
    """The first bytes of a connection through a load balancer."""
    connection = _Fed(data)
    try:
        connection.introduced().send(None)
    except StopIteration:
        expect(data.endswith(connection.left), "bytes after the header are not left as they were")
        if connection._ends_told is not None:
            sender_of(connection.peer_host)
            expect(connection.peer.startswith(connection.peer_host), "another peer")
            expect(0 <= connection._ends_told.client_port <= _MOST_PORT, "a port that there is not")
    except (RemoteProtocolError, ConnectionAbortedError):
        pass


def _balanced_seeds() -> Iterator[bytes]:
    yield b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n" + bytes(20)
    yield b"PROXY TCP6 2001:db8::1 2001:db8::2 4124 9092\r\nrest"
    yield b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"
    for command, family, size in (
        (0x21, 0x11, 12),
        (0x21, 0x21, 36),
        (0x20, 0, 0),
        (0x21, 0x31, 216),
        (0x21, 0x11, 40),
    ):
        yield _SIGNATURE + bytes([command, family]) + size.to_bytes(2, "big") + bytes(range(1, size + 1)) + b"rest"


BALANCED_TARGET: Final = Target(
    "balanced",
    check_balanced,
    _balanced_seeds,
    Bound(steps=10_000, steps_of_byte=200, memory=10_000, memory_of_byte=300),
    ("kproxy.codec.proxy_header", "kproxy.net.balanced_io"),
    (b"PROXY ", b"TCP4 ", b"TCP6 ", b"UNKNOWN", b"\r\n", b" ", b"::", b"127.0.0.1", _SIGNATURE),
)

# -- logins

_NONCE: Final = "server"
_SALT: Final = b"0123456789abcdef"
_ITERATIONS: Final = 4096
_CREDENTIALS: Final = Credentials(
    bytes(32), {("alice", name): make_verifier(name, "secret", _SALT, _ITERATIONS) for name in SCRAM_HASHES}
)


class _Quick(SaltedPassword):
    """Computes nothing for passwords but the right one: it takes 0.3 s on purpose."""

    def key(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        if (salt, iterations) == (_SALT, _ITERATIONS):
            return super().key(mechanism, password, salt, iterations)
        return bytes(32)


_SALTED: Final = _Quick()
_BROKER: Final = 4
_SUBJECT: Final = 5


def check_login(data: bytes) -> None:
    """A byte that chooses the mechanism, then the tokens of a client, or of a broker at which kproxy logs in."""
    said = Choices(data)
    mechanism, tokens = said.number() % 6, [token for _, token in said.pieces()]
    if mechanism == _SUBJECT:
        _subject(b"".join(tokens))
    elif mechanism == _BROKER:
        _at_broker(tokens)
    else:
        _at_kproxy(MECHANISMS[mechanism], tokens)


def _subject(certificate: bytes) -> None:
    try:
        subject_of(certificate)
    except ValueError as error:
        expect(str(error) == "no certificate", "an error that is not documented")


def _at_broker(tokens: list[bytes]) -> None:
    login = Scram("SCRAM-SHA-256", "alice", "secret", "client", _SALTED)
    login.first()
    try:
        for token in tokens:
            if login.next(token) is None:
                break
    except LoginRefused:
        pass


def _at_kproxy(mechanism: str, tokens: list[bytes]) -> None:
    exchange = begin(mechanism, lambda: _CREDENTIALS, lambda: _NONCE)
    for token in tokens:
        step = exchange.step(token)
        if isinstance(step, PasswordCheck):
            step.password.encode()
            step = exchange.checked(Refused("wrong password"))
        elif isinstance(step, TokenCheck):
            step = exchange.checked(Refused("wrong token"))
        if isinstance(step, Accepted):
            expect(step.name == "alice" and mechanism in SCRAM_HASHES, "somebody is let in who has proven nothing")
        if not isinstance(step, Challenge):
            break


def _login_seeds() -> Iterator[bytes]:
    yield b"\0\0" + piece(b"\0alice\0secret")
    yield b"\0\0" + piece(b"alice\0alice\0secret")
    for index, mechanism in ((1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")):
        client, server = (
            Scram(mechanism, "alice", "secret", "client", SaltedPassword()),
            begin(mechanism, lambda: _CREDENTIALS, lambda: _NONCE),
        )
        first = client.first()
        challenge = server.step(first)
        final = client.next(challenge.token) if isinstance(challenge, Challenge) else b""
        accepted = server.step(final or b"")
        yield bytes([index, 0]) + piece(first) + b"\0" + piece(final or b"")
        if index == 1 and isinstance(challenge, Challenge) and isinstance(accepted, Accepted):
            yield bytes([_BROKER, 0]) + piece(challenge.token) + b"\0" + piece(accepted.token)
    yield b"\3\0" + piece(b"n,a=alice,\x01host=h\x01auth=Bearer abc.def.ghi\x01\x01") + b"\0" + piece(b"\x01")
    name = b"\x30\x0c\x31\x0a\x30\x08\x06\x03\x55\x04\x03\x0c\x01a"
    fields = b"\xa0\x03\x02\x01\x02" + b"\x02\x01\x01" + b"\x30\0" * 3 + name
    inner = b"\x30" + bytes([len(fields)]) + fields
    yield bytes([_SUBJECT, 0]) + piece(b"\x30" + bytes([len(inner)]) + inner)


LOGINS_TARGET: Final = Target(
    "logins",
    check_login,
    _login_seeds,
    Bound(steps=10_000, steps_of_byte=100, memory=20_000, memory_of_byte=500),
    (
        "kproxy.proxy.client_login.client_mechanisms",
        "kproxy.proxy.client_login.scram_server",
        "kproxy.proxy.broker_login.scram_client",
        "kproxy.proxy.distinguished_name",
    ),
    (
        b"n,,n=",
        b",r=",
        b"c=biws",
        b",p=",
        b"a=",
        b"=2C",
        b"=3D",
        b"auth=Bearer ",
        b"\x01",
        b"tokenauth=true",
        b",i=4096",
    ),
)
