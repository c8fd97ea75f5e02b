from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.budget import unbounded
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.client_login.gate import OTHER_MECHANISM, LoginGate, NotLoggedInError
from kproxy.proxy.client_login.policy import LoginPolicy
from kproxy.proxy.client_login.steps import Accepted, PasswordCheck, Refused, TokenCheck
from kproxy.proxy.commands import AskVersions, CheckLogin, DelayRefusal
from kproxy.proxy.context import Context, Policy, Services
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.session_queues import Link
from kproxy.proxy.stats import Stats
from tests.proxy.client_login.users import PASSWORD, USERS, ScramClient

ALL = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
PLAIN = b"\0alice\0" + PASSWORD.encode()
BEARER = b"n,,\x01auth=Bearer t\x01\x01"


class Play:
    """A gate and a client of it."""

    def __init__(self, *mechanisms: str, max_reauth_ms: int = 0) -> None:
        self.stats = Stats()
        self.ctx = Context(Services(ClusterMap()), Policy(logs_in_here=True))
        self.link = Link(self.stats.apis, self.ctx)
        self.software: list[tuple[str, str]] = []
        policy = LoginPolicy(mechanisms or ALL, max_reauth_ms, lambda: USERS, lambda: "nonce")
        self.gate = LoginGate(self.ctx, self.link, self.stats.clients, policy, self._note_versions)
        self.now = 1000.0
        #: What became of the last frame.
        self.command: Any = None

    def _note_versions(self, request: ApiVersionsRequest, version: int) -> None:
        self.software.append((request.client_software_name, request.client_software_version, version))

    def ask(self, request: Message, version: int) -> Any:
        """What becomes of a request."""
        return self.take(bytearray(encode_request(request, version, 7, "client")))

    def bare(self, token: bytes) -> Any:
        return self.take(bytearray(len(token).to_bytes(4, "big") + token))

    def take(self, frame: bytearray) -> Any:
        """What a frame waits for; None: it was taken; False: it is not about the login."""
        self.ctx.now = self.now
        if not self.gate.concerns(frame):
            return False
        self.steps = self.gate.take(frame)
        return self.resume()

    def resume(self) -> Any:
        """The same once the last command is carried out."""
        self.command = next(self.steps, None)
        return self.command

    def answer(self, kind: type[Message], version: int) -> Any:
        """The only answer."""
        frame = memoryview(self.frame())
        assert int.from_bytes(frame[:4], "big") == 7
        return kind.decode(frame, version, unbounded(), response_header_size(kind.API_KEY, version, frame))

    def frame(self) -> bytes:
        [frame] = self.link.to_client
        self.link.to_client.clear()
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        return bytes(frame[4:])

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        assert self.ask(SaslHandshakeRequest(mechanism), version) is None
        said = self.answer(SaslHandshakeResponse, version)
        assert (said.error_code, said.mechanisms) == (0, list(ALL))

    def token(self, token: bytes, version: int = 2) -> Any:
        return self.ask(SaslAuthenticateRequest(token), version)

    def answered(self, version: int = 2) -> Any:
        return self.answer(SaslAuthenticateResponse, version)

    def log_in(self, name: str = "alice", expires_at: float | None = None) -> Any:
        """A whole login by PLAIN."""
        self.handshake("PLAIN")
        assert isinstance(self.token(PLAIN), CheckLogin | DelayRefusal)
        self.command.checked(Accepted(name, expires_at=expires_at))
        assert self.resume() is None
        return self.answered()


def test_plain_is_checked_elsewhere() -> None:
    play = Play()
    play.handshake("PLAIN")
    assert isinstance(play.token(PLAIN), CheckLogin | DelayRefusal)
    assert play.command.check == PasswordCheck("alice", PASSWORD)
    play.command.checked(Accepted("alice"))
    assert play.resume() is None
    said = play.answered()
    assert (said.error_code, said.auth_bytes, said.session_lifetime_ms) == (0, b"", 0)
    assert (play.ctx.client.principal, play.gate.passed) == ("User:alice", True)
    assert play.stats.clients.logins == {("PLAIN", "accepted"): 1}
    assert play.ask(MetadataRequest(), 1) is False


@pytest.mark.parametrize("version", [0, 1, 2])
def test_scram_goes_in_two_rounds(version: int) -> None:
    play, client = Play(), ScramClient("SCRAM-SHA-256", "alice", PASSWORD)
    play.handshake("SCRAM-SHA-256")
    assert play.token(client.first(), version) is None
    assert play.token(client.final(play.answered(version).auth_bytes), version) is None
    assert play.answered(version).auth_bytes.startswith(b"v=")
    assert play.ctx.client.principal == "User:alice"


def test_bare_tokens_after_the_old_handshake() -> None:
    play, client = Play(), ScramClient("SCRAM-SHA-256", "alice", PASSWORD)
    play.handshake("SCRAM-SHA-256", 0)
    assert play.bare(client.first()) is None
    assert play.bare(client.final(play.frame())) is None
    assert play.frame().startswith(b"v=")
    assert play.ask(MetadataRequest(), 0) is False


def test_an_old_login_by_plain_is_answered_with_nothing() -> None:
    play = Play()
    play.handshake("PLAIN", 0)
    assert isinstance(play.bare(PLAIN), CheckLogin | DelayRefusal)
    play.command.checked(Accepted("alice"))
    assert play.resume() is None
    assert play.frame() == b""


@pytest.mark.parametrize("bare", [False, True])
def test_who_is_refused_hears_of_it_later_and_the_connection_ends(bare: bool) -> None:
    play = Play()
    play.handshake("PLAIN", 0 if bare else 1)
    offer = play.bare if bare else play.token
    assert isinstance(offer(PLAIN), CheckLogin | DelayRefusal)
    play.command.checked(Refused("wrong password of 'alice'"))
    assert play.resume() == DelayRefusal("wrong password of 'alice'", "PLAIN")
    assert not play.link.to_client
    assert play.resume() is None
    if bare:
        assert not play.link.to_client
    else:
        said = play.answered()
        assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert said.error_message == "Authentication by PLAIN failed: wrong name or password"
    assert play.link.finished
    assert play.stats.clients.logins == {("PLAIN", "refused"): 1}
    assert not play.gate.passed


def test_a_refused_token_is_answered_with_a_challenge_first() -> None:
    play = Play()
    play.handshake("OAUTHBEARER")
    assert isinstance(play.token(BEARER), CheckLogin | DelayRefusal)
    assert play.command.check == TokenCheck("t", "")
    play.command.checked(Refused("expired"))
    assert play.resume() is None
    assert play.answered().auth_bytes == b'{"status": "invalid_token"}'
    assert isinstance(play.token(b"\x01"), CheckLogin | DelayRefusal)
    assert play.resume() is None
    assert play.answered().error_message == "Authentication by OAUTHBEARER failed: the token is not accepted"
    assert play.link.finished


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    play = Play("PLAIN", "OAUTHBEARER")
    request = SaslHandshakeRequest("GSSAPI")
    assert isinstance(play.ask(request, 1), CheckLogin | DelayRefusal)
    assert play.resume() is None
    said = play.answer(SaslHandshakeResponse, 1)
    assert said.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert said.mechanisms == ["PLAIN", "OAUTHBEARER"]
    assert play.link.finished
    assert play.stats.clients.logins == {(OTHER_MECHANISM, "unsupported"): 1}


def test_nothing_else_is_taken_before_the_login() -> None:
    with pytest.raises(NotLoggedInError, match="Metadata was asked before"):
        Play().ask(MetadataRequest(), 1)
    play = Play()
    play.handshake("PLAIN")
    with pytest.raises(NotLoggedInError):
        play.ask(MetadataRequest(), 1)
    with pytest.raises(NotLoggedInError):
        play.ask(SaslHandshakeRequest("PLAIN"), 1)


@pytest.mark.parametrize("logged_in", [False, True])
def test_a_token_without_a_handshake_is_out_of_place(logged_in: bool) -> None:
    play = Play()
    if logged_in:
        play.log_in()
    assert play.token(PLAIN) is None
    assert play.answered().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert play.link.finished is not logged_in


@pytest.mark.parametrize("data", [b"", b"\0\x11", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_request_ends_the_connection(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Play().bare(data)


def test_versions_are_returned_without_a_broker() -> None:
    play = Play()
    asked = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2")
    assert play.ask(asked, 3) == AskVersions()
    rows = [ApiVersionsResponseApiVersion(key, 0, 3) for key in (ApiKey.METADATA, ApiKey.API_VERSIONS)]
    play.ctx.broker_said = ApiVersionsResponse(api_keys=rows, finalized_features_epoch=5)
    play.ctx.broker_versions = {row.api_key: (row.min_version, row.max_version) for row in rows}
    assert play.resume() is None
    said = play.answer(ApiVersionsResponse, 3)
    told = {row.api_key: (row.min_version, row.max_version) for row in said.api_keys}
    assert told[ApiKey.SASL_HANDSHAKE] == (0, 1)
    assert told[ApiKey.SASL_AUTHENTICATE] == (0, 2)
    assert said.finalized_features_epoch == 5
    assert play.software == [("librdkafka", "2", 3)]
    assert play.ask(asked, 4) is None
    assert play.answer(ApiVersionsResponse, 0).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_invalid_question_for_versions_is_refused_and_the_login_may_follow() -> None:
    """As by ``SaslServerAuthenticator``, which does not compare cluster and node either: the login comes first."""
    play = Play()
    play.ctx.broker_said = ApiVersionsResponse()
    play.ctx.broker_versions = {ApiKey.API_VERSIONS: (0, 5)}
    for asked in (
        ApiVersionsRequest("a b", "1"),
        ApiVersionsRequest("a", "1", "cluster"),
        ApiVersionsRequest("a", "1", None, 3),
    ):
        assert play.ask(asked, 5) is None
        assert play.answer(ApiVersionsResponse, 5).error_code == ErrorCode.INVALID_REQUEST
    assert not play.software
    assert play.ask(ApiVersionsRequest("a", "1", "any", 3), 5) is None
    assert play.answer(ApiVersionsResponse, 5).error_code == ErrorCode.NONE
    play.log_in()


def test_a_login_lasts_as_long_as_the_shorter_of_token_and_option() -> None:
    assert Play(max_reauth_ms=5000).log_in(expires_at=1002.5).session_lifetime_ms == 2500
    assert Play(max_reauth_ms=1000).log_in(expires_at=1002.5).session_lifetime_ms == 1000
    assert Play().log_in(expires_at=999.0).session_lifetime_ms == 1
    assert Play().log_in().session_lifetime_ms == 0


def test_a_login_that_was_not_renewed_in_time_has_ended() -> None:
    play = Play(max_reauth_ms=1000)
    play.log_in()
    play.now += 0.9
    assert play.log_in().session_lifetime_ms == 1000
    play.now += 0.9
    assert play.ask(MetadataRequest(), 1) is False
    play.now += 0.2
    with pytest.raises(NotLoggedInError, match="the login of User:alice has expired"):
        play.ask(MetadataRequest(), 1)
    assert play.stats.clients.logins == {("PLAIN", "accepted"): 1, ("PLAIN", "renewed"): 1}


def test_another_user_cannot_take_a_connection_over() -> None:
    play = Play()
    play.log_in()
    play.handshake("PLAIN")
    play.token(PLAIN)
    play.command.checked(Accepted("bob"))
    assert isinstance(play.resume(), CheckLogin | DelayRefusal)
    assert play.resume() is None
    assert "a login of User:alice can't be renewed by User:bob" in play.answered().error_message
    assert play.ctx.client.principal == "User:alice"
    assert play.link.finished


def test_a_login_is_renewed_by_its_own_mechanism_only() -> None:
    play = Play()
    play.log_in()
    play.handshake("OAUTHBEARER")
    assert isinstance(play.token(BEARER), CheckLogin | DelayRefusal)
    assert isinstance(play.command, DelayRefusal)
    assert play.resume() is None
    assert "a login by PLAIN can't be renewed by OAUTHBEARER" in play.answered().error_message


HEADERS = st.builds(
    lambda key, version, rest: key.to_bytes(2, "big") + version.to_bytes(2, "big") + rest,
    st.sampled_from([ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]),
    st.integers(0, 3),
    st.binary(max_size=60),
)


@given(st.sampled_from([None, 0, 1]), st.sampled_from(ALL), st.lists(st.binary(max_size=60) | HEADERS, max_size=4))
def test_whatever_is_sent_nobody_comes_in(version: int | None, mechanism: str, frames: list[bytes]) -> None:
    play = Play()
    if version is not None:
        play.handshake(mechanism, version)
    for frame in frames:
        try:
            taken = play.bare(frame)
        except RemoteProtocolError:
            break
        assert taken is None or isinstance(taken, AskVersions | CheckLogin | DelayRefusal)
        while taken is not None and not isinstance(taken, AskVersions):
            if isinstance(taken, CheckLogin):
                taken.checked(Refused("nobody"))
            taken = play.resume()
    assert not play.gate.passed
    assert play.ctx.client.principal == "User:ANONYMOUS"


def test_a_broker_that_does_not_report_api_versions_is_asked_at_the_oldest() -> None:
    play = Play()
    play.ctx.broker_said = ApiVersionsResponse()
    assert play.ask(ApiVersionsRequest(), 1) is None
    assert play.answer(ApiVersionsResponse, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
