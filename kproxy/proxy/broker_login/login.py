"""The exchange of one login: SaslHandshake v1, then SaslAuthenticate until the mechanism is satisfied (KIP-152)."""

from typing import Final, NamedTuple

from kproxy.budget import standalone
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused, Mechanism

_HANDSHAKE: Final = 1
_CLIENT_ID: Final = "kproxy"
#: Characters of a broker's reason for a refusal that are passed on.
_LONGEST_REASON: Final = 300
#: More rounds than any mechanism has.
_MOST_ROUNDS: Final = 5


class Asked(NamedTuple):
    """A request of the login, and its version."""

    request: Message
    version: int


class Login:
    """One exchange; ``lifetime_ms`` is known when it has ended."""

    def __init__(
        self, mechanism: Mechanism, who: str, check: str, authenticate: int, *, options: str = "upstream"
    ) -> None:
        """``who`` logs in, for errors, and ``check`` is what to look at if it is refused.

        ``authenticate``: the version of SaslAuthenticate that the broker serves, at most 2. ``options``: what the names
        of the options begin with, for errors.
        """
        self._options = options
        self._mechanism = mechanism
        self._who = who
        self._check = check
        self._version = authenticate
        self._rounds = 0
        #: How long the login holds (KIP-368), in ms; 0: as long as the connection.
        self.lifetime_ms = 0

    def start(self) -> Asked:
        return Asked(SaslHandshakeRequest(mechanism=self._mechanism.mechanism), _HANDSHAKE)

    def answer(self, response: Message) -> Asked | None:
        """The next request; None: kproxy is logged in. LoginRefused; RemoteProtocolError: the broker makes no sense."""
        if isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            return self._say(self._mechanism.first())
        if not isinstance(response, SaslAuthenticateResponse):
            raise RemoteProtocolError("the broker answered another request than SaslAuthenticate")
        if response.error_code:
            raise LoginRefused(self._refused(response))
        token = self._mechanism.next(response.auth_bytes)
        if token is None:
            self.lifetime_ms = max(0, response.session_lifetime_ms)
            return None
        return self._say(token)

    def _say(self, token: bytes) -> Asked:
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise RemoteProtocolError(f"{self._mechanism.mechanism} does not come to an end")
        return Asked(SaslAuthenticateRequest(auth_bytes=token), self._version)

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(_printable(name) for name in response.mechanisms) or "nothing"
            what = f"does not offer {self._mechanism.mechanism}, but {offered}"
            raise LoginRefused(f"the broker {what}: set {self._options}.sasl.mechanism")
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginRefused(
                "this port of the broker takes no SASL: give the port of a SASL listener, or set "
                f"{self._options}.security.protocol to plaintext or ssl"
            )
        if response.error_code:
            raise LoginRefused(f"the broker answered SaslHandshake with error {response.error_code}")

    def _refused(self, response: SaslAuthenticateResponse) -> str:
        said = _printable(response.error_message or "") or f"error {response.error_code}"
        return f"the broker refused {self._who} ({self._mechanism.mechanism}): {said}; check {self._check}"


class LoginFrames:
    """A login as frames among a client's: each request under one correlation id, which its response bears."""

    def __init__(self, login: Login, correlation_id: int) -> None:
        """``correlation_id``: one that no request in flight has."""
        self._login = login
        self.correlation_id = correlation_id
        self._asked = login.start()

    @property
    def lifetime_ms(self) -> int:
        return self._login.lifetime_ms

    def frame(self) -> bytes:
        return encode_request(self._asked.request, self._asked.version, self.correlation_id, _CLIENT_ID)

    def answer(self, frame: bytes) -> bool:
        """Takes a response (prefix included): whether another request is to be sent. As ``Login.answer``."""
        view = memoryview(frame)[4:]
        key, version = self._asked.request.API_KEY, self._asked.version
        kind = SaslHandshakeResponse if key == ApiKey.SASL_HANDSHAKE else SaslAuthenticateResponse
        asked = self._login.answer(kind.decode(view[response_header_size(key, version, view) :], version, standalone()))
        if asked is not None:
            self._asked = asked
        return asked is not None


def _printable(text: str) -> str:
    """What a broker says, on one line and not too long."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:_LONGEST_REASON]).rstrip(". ")
