"""One blocking connection to a broker or to kproxy, for Spark's processes, which know nothing of trio.

Every wait is bounded, and responses come in the order of their requests. The version of a request is the newest that
both sides know, as ApiVersions (KIP-35, KIP-511) tells when the connection is opened.
"""

import socket
import ssl
import time
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeVar

import kproxy
from kproxy.budget import standalone
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproxy.codec.error_codes import error_name
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.version_choice import NoCommonVersion, choose_version
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused
from kproxy.proxy.routing import Address
from kproxy.spark.secured_connection import LogIn, tls_context
from kproxy.spark.security_options import PLAIN_TEXT, Security
from kproxy.spark.spark_errors import KafkaError, LoginFailed

_ResultT = TypeVar("_ResultT")
_MessageT = TypeVar("_MessageT", bound=Message)
_I32: Final = Struct(">i")
_CORRELATION_AT: Final = 4
_SOFTWARE: Final = "kproxy-spark"
_ASK_VERSIONS: Final = (3, 0)
_AUTHENTICATE: Final = (0, 2)
_UNSUPPORTED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)
#: A response of more than this is damage, or a batch too large for a worker's memory.
MOST_ANSWER_BYTES: Final = 160 << 20
_STEP_BYTES: Final = 1 << 20
#: For each response of TLS, ApiVersions and SASL.
_SETUP_S: Final = 10.0
_PROBE_S: Final = 2.0
#: A login is renewed, by a new connection, after this share of its time (KIP-368).
_RENEW_AFTER: Final = 0.8


class Protection:
    """What all connections of a cluster share of TLS and SASL; made when the first one is opened."""

    def __init__(self, security: Security) -> None:
        self.security = security
        self._context: ssl.SSLContext | None = None
        self._log_in: LogIn | None = None

    def wrap(self, plain: socket.socket, address: Address) -> socket.socket:
        """The socket over TLS, if that is asked for. OptionError, LoginFailed, KafkaError, OSError."""
        if not self.security.is_tls:
            return plain
        if self._context is None:
            self._context = tls_context(self.security)
        try:
            return self._context.wrap_socket(plain, server_hostname=address.host)
        except ssl.SSLCertVerificationError as error:
            why = f"{error.verify_message}; see kafka.ssl.truststore.location"
            raise LoginFailed(f"the certificate of {address} is not accepted: {why}") from None
        except ssl.SSLError as error:
            if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
                raise LoginFailed(_plain(address)) from None
            if "ALERT" in (error.reason or ""):
                raise LoginFailed(_refused(address, error)) from None
            if error.reason == "UNEXPECTED_EOF_WHILE_READING":  # a broker takes the handshake for a long request
                # So does a process that is killed: worth another try.
                raise KafkaError(f"{address} ended the connection in the TLS handshake; if {_plain(address)}") from None
            raise LoginFailed(f"TLS with {address} fails: {error.reason or error}") from None

    def log_in(self, ask: "Callable[[Message, int], Message]", version: Callable[[], int]) -> float:
        """For how many seconds the login holds; 0: as long as the connection. KafkaError."""
        if self.security.sasl is None:
            return 0
        if self._log_in is None:
            self._log_in = LogIn(self.security.sasl)
        try:
            return self._log_in(ask, version())
        except (LoginRefused, RemoteProtocolError) as error:
            raise LoginFailed(str(error)) from None


def _plain(address: Address) -> str:
    return f"{address} speaks no TLS: set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT, or give its TLS port"


def _refused(address: Address, alert: ssl.SSLError) -> str:
    return f"{address} ends TLS ({alert.reason}): does it ask for a certificate? See kafka.ssl.keystore.location"


def _speaks_tls(address: Address) -> bool:
    """Whether a TLS handshake begins there; whom it is with does not matter."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection(address, _PROBE_S) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it wants a certificate, say
    except OSError:
        return False


class Connection:
    """An open connection, to be closed.

    After any error it is closed, as nobody knows what comes next on it.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        protection: Protection | None = None,
        connect_s: float = 5.0,
    ) -> None:
        """Connects, logs in and asks for the versions. Raises KafkaError; LoginFailed if a retry would not help.

        ``timeout_s`` bounds each wait, and ``connect_s`` that for the TCP connection.
        """
        self._address = address
        self._client_id = client_id
        self._sent = 0
        self._received = 0
        self._answered = False
        protection = protection or Protection(PLAIN_TEXT)
        self._is_plain = protection.security == PLAIN_TEXT
        self._is_nobody = protection.security.is_tls and protection.security.keys is None
        try:
            self._socket = socket.create_connection(address, min(timeout_s, connect_s))
        except OSError as error:
            raise KafkaError(f"cannot connect to {address}: {error}; is kproxy, or a broker, running there?") from error
        try:
            self._socket.settimeout(min(timeout_s, _SETUP_S))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = protection.wrap(self._socket, address)
            self._versions = self._first_answer(self._ask_versions)
            seconds = protection.log_in(
                self._ask_for_login, lambda: self.version(SaslAuthenticateRequest, *_AUTHENTICATE)
            )
            self._renew_at = time.monotonic() + seconds * _RENEW_AFTER if seconds else float("inf")
            self._socket.settimeout(timeout_s)
        except OSError as error:
            self.close()
            raise KafkaError(f"cannot connect to {address}: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def is_old(self) -> bool:
        """Whether its login ends soon: the next request should have a new connection."""
        return time.monotonic() > self._renew_at

    @property
    def address(self) -> Address:
        return self._address

    @property
    def awaited(self) -> int:
        """How many responses are to come."""
        return self._sent - self._received

    def version(self, message: type[Message], oldest: int, newest: int) -> int:
        """The newest version from ``oldest`` to ``newest`` that the other side serves; KafkaError if there is none."""
        try:
            return choose_version(self._versions, message, (oldest, newest))
        except NoCommonVersion as error:
            raise KafkaError(f"{self._address}: {error}") from None

    def call(self, request: Message, version: int, answer: type[_MessageT]) -> _MessageT:
        """Sends a request and waits for its response. Raises KafkaError."""
        self.send(request, version)
        return self.receive(version, answer)

    def send(self, request: Message, version: int) -> None:
        """Sends a request, to which there will be a response. Raises KafkaError."""
        self._sent += 1
        frame = encode_request(request, version, self._sent, self._client_id)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise KafkaError(f"cannot send to {self._address}: {error}") from error

    def receive(self, version: int, answer: type[_MessageT]) -> _MessageT:
        """The response to the oldest request that has none; its records are views of one buffer. Raises KafkaError."""
        frame = self._frame()
        self._received += 1
        try:
            (correlation_id,) = _I32.unpack_from(frame)
            if correlation_id != self._received:
                raise RemoteProtocolError("it answers another request")
            if answer is ApiVersionsResponse and frame[_CORRELATION_AT : _CORRELATION_AT + 2] == _UNSUPPORTED:
                version = 0  # this error comes in the oldest shape, whatever was asked for
            decoded = answer.decode(frame, version, standalone(), response_header_size(answer.API_KEY, version, frame))
            self._answered = answer is not ApiVersionsResponse
            return decoded
        except RemoteProtocolError as error:
            self.close()
            raise KafkaError(f"{self._address} sent what is no {answer.__name__}: {error}") from error

    def close(self) -> None:
        """Closes the connection; harmless when called again."""
        self._socket.close()

    @property
    def _hint(self) -> str:
        """Why the first request after ApiVersions is most likely not answered."""
        sasl = self._is_plain and not self._answered
        return "; a listener with SASL does this: set kafka.security.protocol" if sasl else ""

    def _first_answer(self, ask: Callable[[], _ResultT]) -> _ResultT:
        """What ``ask`` returns. LoginFailed if there is no response for a reason that stays.

        That is a TLS port spoken to in the clear, or a certificate that the other side does not take.
        """
        try:
            return ask()
        except KafkaError as error:
            why = error.__cause__
            if isinstance(why, ssl.SSLError) and "ALERT" in (why.reason or ""):  # of TLS 1.3, after the handshake
                raise LoginFailed(_refused(self._address, why)) from None
            if self._is_nobody and isinstance(why, ConnectionError | ssl.SSLError):
                hint = "a listener that asks for certificates may do this; see kafka.ssl.keystore.location"
                raise KafkaError(f"{error}; {hint}") from why
            if self._is_plain and _speaks_tls(self._address):
                set_it = "set kafka.security.protocol to SSL or SASL_SSL"
                raise LoginFailed(f"{self._address} is a TLS port: {set_it}") from None
            raise

    def _ask_for_login(self, request: Message, version: int) -> Message:
        answer = SaslHandshakeResponse if isinstance(request, SaslHandshakeRequest) else SaslAuthenticateResponse
        return self.call(request, version, answer)

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
                    raise ConnectionError(f"it ended the connection{self._hint}")
                filled += count
        except OSError as error:
            self.close()
            raise KafkaError(f"no answer from {self._address}: {error}") from error
        return memoryview(data)
