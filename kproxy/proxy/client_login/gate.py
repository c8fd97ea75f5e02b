"""A client's login at kproxy, as in Kafka's ``SaslServerAuthenticator``: KIP-43, KIP-152 and KIP-368.

Before the login only ApiVersions, SaslHandshake and SaslAuthenticate are accepted; after it the last two begin another
one. The broker receives none of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproxy.codec.header import RequestHeader, decode_request_header
from kproxy.codec.messages import ApiKey, ErrorCode, Message, api_name
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.client_ids import kept_client_id
from kproxy.proxy.client_login.client_mechanisms import begin
from kproxy.proxy.client_login.policy import LoginPolicy
from kproxy.proxy.client_login.steps import (
    Accepted,
    Exchange,
    PasswordCheck,
    Refused,
    TokenCheck,
    Verdict,
)
from kproxy.proxy.client_stats import ClientStats
from kproxy.proxy.commands import AskVersions, CheckLogin, DelayRefusal, Procedure
from kproxy.proxy.context import Context, Fault
from kproxy.proxy.handlers.api_versions import is_valid, own_answer, unsupported_version
from kproxy.proxy.principals import user
from kproxy.proxy.session_queues import Link
from kproxy.proxy.slots import Slot
from kproxy.proxy.versions import LOGINS

#: The label of mechanisms that are not enabled: clients can send any number of names.
OTHER_MECHANISM: Final = "(other)"

_PREFIX: Final = 4
#: The first ApiVersions in which a client says what it is (KIP-511).
_WRONG: Final = {"OAUTHBEARER": "the token is not accepted"}


class NotLoggedInError(RemoteProtocolError):
    """A client sends another request before it has logged in, or after its login has expired."""

    refusal = "unauthenticated"


@dataclass(slots=True)
class _Login:
    """A login that has begun."""

    mechanism: str
    exchange: Exchange
    #: Whether tokens come bare, after a SaslHandshake v0.
    bare: bool


@dataclass(slots=True)
class _Asked:
    """A request, or a bare token, that has no response yet."""

    header: RequestHeader | None
    size: int


class LoginGate:
    """Takes the requests of one connection that are about its login, and refuses others until it is done."""

    def __init__(
        self,
        ctx: Context,
        link: Link,
        stats: ClientStats,
        policy: LoginPolicy,
        note_versions: Callable[[ApiVersionsRequest, int], None],
    ) -> None:
        """Sets ``ctx.client.principal`` when the client is known; answers go into ``link``.

        ``note_versions`` gets each ApiVersions request and its version.
        """
        self._ctx = ctx
        self._link = link
        self._stats = stats
        self._policy = policy
        self._note_versions = note_versions
        self._login: _Login | None = None
        #: Who has logged in, by which mechanism, and until when (seconds since the epoch; None: for good).
        self._who: str | None = None
        self._mechanism = ""
        self._expires_at: float | None = None
        #: Why the client is refused, which it receives after a while.
        self._refused: Refused | None = None

    @property
    def passed(self) -> bool:
        return self._who is not None

    def concerns(self, frame: bytearray) -> bool:
        """Whether a request is about the login, or comes before it. NotLoggedInError: it comes too late after it."""
        if self._login is not None or self._who is None or int.from_bytes(frame[4:6], "big") in LOGINS:
            return True
        if self._expires_at is not None and self._ctx.now > self._expires_at:
            who = self._ctx.client.principal
            raise NotLoggedInError(f"the login of {who} has expired, and was not renewed in time")
        return False

    def take(self, frame: bytearray) -> Procedure:
        """Takes a request that concerns the login.

        NotLoggedInError, RemoteProtocolError: the connection has to end.
        """
        login = self._login
        if login is not None and login.bare:
            return self._token(_Asked(None, len(frame)), login, bytes(frame[_PREFIX:]))
        view = memoryview(frame)[_PREFIX:]
        header = decode_request_header(view)
        self._ctx.know(client_id=kept_client_id(header.client_id or ""))
        return self._request(_Asked(header, len(frame)), header, view[header.size :])

    def _refuse(self, refused: Refused, mechanism: str) -> DelayRefusal:
        self._refused = refused
        return DelayRefusal(refused.reason, mechanism)

    def _request(self, asked: _Asked, header: RequestHeader, body: memoryview) -> Procedure:
        login = self._login
        if header.api_key == ApiKey.API_VERSIONS and login is None:
            yield from self._api_versions(asked, header, body)
        elif header.api_key == ApiKey.SASL_HANDSHAKE and login is None:
            mechanism = SaslHandshakeRequest.decode(
                body, header.api_version, self._ctx.share.of_request(), surplus=True
            ).mechanism
            yield from self._handshake(asked, mechanism, bare=header.api_version == 0)
        elif header.api_key == ApiKey.SASL_AUTHENTICATE:
            token = SaslAuthenticateRequest.decode(
                body, header.api_version, self._ctx.share.of_request(), surplus=True
            ).auth_bytes
            if login is not None:
                yield from self._token(asked, login, token)
                return
            message = "SaslHandshake must come first"
            self._answer(asked, SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message), ends=not self.passed)
        else:
            raise NotLoggedInError(f"{api_name(header.api_key)} was asked before the client has logged in by SASL")

    def _api_versions(self, asked: _Asked, header: RequestHeader, body: memoryview) -> Procedure:
        while (said := self._ctx.broker_said) is None:
            yield AskVersions()
        newest = min(ApiVersionsRequest.MAX_VERSION, self._ctx.broker_versions.get(ApiKey.API_VERSIONS, (0, 0))[1])
        if header.api_version > newest:
            self._answer(asked, unsupported_version(newest), version=0)
            return
        request = ApiVersionsRequest.decode(body, header.api_version, self._ctx.share.of_request(), surplus=True)
        if not is_valid(request, header.api_version):
            self._answer(asked, ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        self._note_versions(request, header.api_version)
        self._answer(asked, own_answer(self._ctx, said))

    def _handshake(self, asked: _Asked, mechanism: str, *, bare: bool) -> Procedure:
        enabled = list(self._policy.mechanisms)
        if self._refused is None and mechanism not in enabled:
            self._count(OTHER_MECHANISM, "unsupported")
            reason = f"the mechanism {mechanism[:40]!r} is not one of {', '.join(enabled)}"
            yield self._refuse(Refused(reason), self._mechanism)
        if self._refused is not None:
            refusal = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
            self._answer(asked, refusal, ends=True)
            return
        self._login = _Login(mechanism, begin(mechanism, self._policy.credentials, self._policy.nonce), bare)
        self._answer(asked, SaslHandshakeResponse(ErrorCode.NONE, enabled))

    def _token(self, asked: _Asked, login: _Login, token: bytes) -> Procedure:
        if self._refused is not None:
            self._turn_away(asked, login.mechanism, self._refused)
            return
        outcome = login.exchange.step(token) if self._may_renew(login) else self._other_mechanism(login)
        if isinstance(outcome, PasswordCheck | TokenCheck):
            verdicts: list[Verdict] = []
            yield CheckLogin(outcome, verdicts.append)
            [verdict] = verdicts
            outcome = login.exchange.checked(verdict)
        if isinstance(outcome, Accepted):
            outcome = self._same_user(outcome)
        if isinstance(outcome, Refused):
            self._count(login.mechanism, "refused")
            self._ctx.fault = Fault(f"login by {login.mechanism} refused", self._ctx.now)
            yield self._refuse(outcome, login.mechanism)
            self._turn_away(asked, login.mechanism, outcome)
            return
        lifetime_ms = self._accept(login, outcome) if isinstance(outcome, Accepted) else 0
        if asked.header is None:
            self._answer_bare(asked, outcome.token)
        else:
            response = SaslAuthenticateResponse(auth_bytes=outcome.token, session_lifetime_ms=lifetime_ms)
            self._answer(asked, response)

    def _may_renew(self, login: _Login) -> bool:
        return self._who is None or login.mechanism == self._mechanism

    def _other_mechanism(self, login: _Login) -> Refused:
        return Refused("another mechanism", f"a login by {self._mechanism} can't be renewed by {login.mechanism}")

    def _same_user(self, accepted: Accepted) -> Verdict:
        if self._who in (None, accepted.name):
            return accepted
        message = f"a login of {self._ctx.client.principal} can't be renewed by {user(accepted.name)}"
        return Refused("another user", message)

    def _accept(self, login: _Login, accepted: Accepted) -> int:
        """Lets the client in; for how long, in ms (KIP-368), 0: as long as it likes."""
        now = self._ctx.now
        self._count(login.mechanism, "accepted" if self._who is None else "renewed")
        self._who, self._mechanism, self._login = accepted.name, login.mechanism, None
        self._ctx.know(principal=user(accepted.name))
        ends = [now + self._policy.max_reauth_ms / 1000] if self._policy.max_reauth_ms else []
        ends += [accepted.expires_at] if accepted.expires_at is not None else []
        self._expires_at = min(ends, default=None)
        return 0 if self._expires_at is None else max(1, int((self._expires_at - now) * 1000))

    def _turn_away(self, asked: _Asked, mechanism: str, refused: Refused) -> None:
        if asked.header is None:
            self._end(asked)  # in the old way the connection just ends
            return
        what = refused.message or _WRONG.get(mechanism, "wrong name or password")
        message = f"Authentication by {mechanism} failed: {what}"
        refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        self._answer(asked, refusal, ends=True)

    def _answer(self, asked: _Asked, message: Message, *, version: int | None = None, ends: bool = False) -> None:
        assert asked.header is not None
        header = asked.header
        slot = Slot(header.api_key, header.api_version, header.correlation_id, self._ctx.now, asked.size)
        self._link.order.open(slot)
        self._link.answer(slot, message, header.api_version if version is None else version)
        if ends:
            self._end(asked)

    def _answer_bare(self, asked: _Asked, token: bytes) -> None:
        slot = Slot(ApiKey.SASL_AUTHENTICATE, 0, 0, self._ctx.now, asked.size)
        self._link.order.open(slot)
        self._link.answer_raw(slot, len(token).to_bytes(4, "big") + token)

    def _end(self, asked: _Asked) -> None:
        """The connection ends after the responses that were written."""
        slot = Slot(ApiKey.SASL_AUTHENTICATE, 0, 0, self._ctx.now, 0)
        self._link.order.open(slot)
        self._link.fail(slot)

    def _count(self, mechanism: str, result: str) -> None:
        key = mechanism, result
        self._stats.logins[key] = self._stats.logins.get(key, 0) + 1
