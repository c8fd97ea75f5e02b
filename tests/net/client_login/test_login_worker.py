"""Logins at a whole kproxy, over sockets."""

import builtins
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from structlog.testing import capture_logs

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.config import Address, Config, ExitCode, StartupError
from kproxy.net.client_login.credential_file import write_credentials
from kproxy.net.client_login.login_worker import LoginWorker
from kproxy.proxy.client_login.client_mechanisms import MECHANISMS
from kproxy.proxy.client_login.stored_credentials import Credentials, Verifier, make_verifier
from kproxy.proxy.permits import PermitRule
from kproxy.resources import open_logins
from tests.net.certificates import Authority
from tests.net.client_login.issuer import Issuer
from tests.net.harness import FrameClient, eventually, metadata, produce, proxied, values_in
from tests.net.test_tls_network import may_use, tls_client
from tests.proxy.client_login.test_gate import Play
from tests.proxy.client_login.users import PASSWORD, USERS, ScramClient

pytestmark = pytest.mark.idle_clock


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    write_credentials(tmp_path / "users", USERS)
    issuer = Issuer("one")
    return {
        "sasl_enabled_mechanisms": MECHANISMS,
        "sasl_credentials_location": tmp_path / "users",
        "connection_failed_authentication_delay_ms": 1,
        "sasl_oauthbearer_jwks_endpoint_url": issuer.write(tmp_path / "keys"),
        "sasl_oauthbearer_expected_audience": ("kafka",),
    }


async def plain(client: FrameClient, password: str = PASSWORD, name: str = "alice") -> Any:
    assert (await client.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
    return await client.call(SaslAuthenticateRequest(f"\0{name}\0{password}".encode()), 2)


async def bare(client: FrameClient, token: bytes) -> bytes:
    await client.stream.send_all(len(token).to_bytes(4, "big") + token)
    return await client.frame()


async def test_a_client_that_has_logged_in_is_served_as_any(options: dict[str, Any]) -> None:
    async with proxied(**options) as proxy:
        proxy.brokers.create_topic("t", 1)
        async with await proxy.client(1) as client:
            served = await client.call(ApiVersionsRequest("librdkafka", "2"), 3)
            assert {row.api_key for row in served.api_keys} >= {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
            assert proxy.stats.upstream.connections_open == 0
            assert (await plain(client)).error_code == 0
            long = b"x" * 800_000
            said = await client.call(produce("t", long), 7)
            assert said.responses[0].partition_responses[0].error_code == 0
        assert values_in(proxy.brokers, "t") == [long]
        assert proxy.stats.clients.logins == {("PLAIN", "accepted"): 1}


async def test_over_tls_the_login_counts_not_the_certificate(options: dict[str, Any], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files, mine = authority.issue("localhost"), authority.issue("me", to="me")
    tls = {
        "ssl_certificate_location": files.certificate,
        "ssl_key_location": files.key,
        "ssl_client_auth": "required",
        "ssl_ca_location": authority.ca,
        "transactional_id_clients": (PermitRule("mine", "User:alice"),),
    }
    async with proxied(**options, **tls) as proxy, await tls_client(proxy.port, mine) as client:
        await client.call(ApiVersionsRequest("librdkafka", "2"), 3)
        assert (await plain(client)).error_code == 0
        assert await may_use(client, "mine")


async def test_scram_with_bare_tokens(options: dict[str, Any]) -> None:
    async with proxied(**options) as proxy, await proxy.client() as client:
        scram = ScramClient("SCRAM-SHA-512", "alice", PASSWORD)
        assert (await client.call(SaslHandshakeRequest("SCRAM-SHA-512"), 0)).error_code == 0
        challenge = await bare(client, scram.first())
        assert (await bare(client, scram.final(challenge))).startswith(b"v=")
        await client.call(metadata(), 1)


async def test_a_token_lets_in_until_it_expires(options: dict[str, Any], tmp_path: Path) -> None:
    issuer = Issuer("one")
    issuer.write(tmp_path / "keys")
    async with proxied(**options) as proxy, await proxy.client() as client:
        assert (await client.call(SaslHandshakeRequest("OAUTHBEARER"), 1)).error_code == 0
        token = f"n,,\x01auth=Bearer {issuer.token('one')}\x01\x01".encode()
        said = await client.call(SaslAuthenticateRequest(token), 2)
        assert said.error_code == 0
        assert 50_000 < said.session_lifetime_ms <= 60_000


@pytest.mark.parametrize(("name", "password"), [("alice", "guess"), ("nobody", PASSWORD)])
async def test_a_refused_client_receives_the_same_and_counted(
    options: dict[str, Any], name: str, password: str
) -> None:
    async with proxied(**options) as proxy, await proxy.client() as client:
        said = await plain(client, password, name)
        assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert said.error_message == "Authentication by PLAIN failed: wrong name or password"
        assert await client.ended()
        assert proxy.stats.clients.logins == {("PLAIN", "refused"): 1}
        await eventually(lambda: not proxy.server.connections)
        assert [fault.reason for fault in proxy.server.last_faults.by_client.values()] == ["login by PLAIN refused"]


async def test_a_login_that_was_overheard_is_refused_when_it_is_retried(options: dict[str, Any]) -> None:
    async with proxied(**options) as proxy:
        scram = ScramClient("SCRAM-SHA-256", "alice", PASSWORD)
        async with await proxy.client() as client:
            assert (await client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)).error_code == 0
            first = scram.first()
            challenge = (await client.call(SaslAuthenticateRequest(first), 2)).auth_bytes
            final = scram.final(challenge)
            assert (await client.call(SaslAuthenticateRequest(final), 2)).error_code == 0
        async with await proxy.client() as thief:
            assert (await thief.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)).error_code == 0
            assert (await thief.call(SaslAuthenticateRequest(first), 2)).auth_bytes != challenge
            said = await thief.call(SaslAuthenticateRequest(final), 2)
            assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await thief.ended()
        assert proxy.stats.clients.logins == {("SCRAM-SHA-256", "accepted"): 1, ("SCRAM-SHA-256", "refused"): 1}


async def test_a_token_that_has_expired_is_refused_and_counted(options: dict[str, Any], tmp_path: Path) -> None:
    issuer = Issuer("one")
    issuer.write(tmp_path / "keys")
    async with proxied(**options) as proxy, await proxy.client() as client:
        assert (await client.call(SaslHandshakeRequest("OAUTHBEARER"), 1)).error_code == 0
        token = f"n,,\x01auth=Bearer {issuer.token('one', exp=1_000_000_000)}\x01\x01".encode()
        said = await client.call(SaslAuthenticateRequest(token), 2)
        assert said.error_code == ErrorCode.NONE
        assert b"invalid_token" in said.auth_bytes  # RFC 7628: sent as a challenge, refused after the client's response
        said = await client.call(SaslAuthenticateRequest(b"\x01"), 2)
        assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.ended()
        assert proxy.stats.clients.logins == {("OAUTHBEARER", "refused"): 1}


async def test_nothing_is_served_before_the_login(options: dict[str, Any]) -> None:
    async with proxied(**options) as proxy:
        async with await proxy.client() as client:
            await client.send(metadata(), 1)
            assert await client.ended()
        assert proxy.stats.refused.refusals == {"unauthenticated": 1}
        async with await proxy.client() as client:
            await client.stream.send_all((600_000).to_bytes(4, "big"))
            assert await client.ended()
        assert proxy.stats.refused.refusals == {"unauthenticated": 1, "malformed": 1}


async def test_who_takes_too_long_to_log_in_is_shown_out(options: dict[str, Any]) -> None:
    async with proxied(**options, frame_timeout_ms=200) as proxy, await proxy.client() as client:
        assert (await client.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
        assert await client.ended()
        assert proxy.stats.refused.refusals == {"unauthenticated": 1}


async def test_a_login_that_is_not_renewed_ends_the_connection(options: dict[str, Any]) -> None:
    async with proxied(**options, connections_max_reauth_ms=150) as proxy, await proxy.client() as client:
        assert (await plain(client)).session_lifetime_ms == 150
        assert (await plain(client)).error_code == 0
        await trio.sleep(0.2)
        await client.send(metadata(), 1)
        assert await client.ended()
        assert proxy.stats.clients.logins == {("PLAIN", "accepted"): 1, ("PLAIN", "renewed"): 1}
        assert proxy.stats.refused.refusals == {"unauthenticated": 1}


async def test_a_user_who_is_removed_cannot_log_in_any_more(options: dict[str, Any], tmp_path: Path) -> None:
    async with proxied(**options) as proxy:
        async with await proxy.client() as client:
            assert (await plain(client)).error_code == 0
        (tmp_path / "users").write_text("decoy " + "A" * 43 + "=\n")

        async def gone() -> bool:
            async with await proxy.client() as client:
                return bool((await plain(client)).error_code)

        with trio.fail_after(120):
            while not await gone():  # noqa: ASYNC110 - a file that is checked once a second
                await trio.sleep(0.2)


async def test_rules_may_name_who_has_logged_in(options: dict[str, Any]) -> None:
    rules = (PermitRule("mine", "User:alice"), PermitRule("other", "User:bob"))
    async with proxied(**options, transactional_id_clients=rules) as proxy, await proxy.client() as client:
        await plain(client)
        assert await may_use(client, "mine")
        assert not await may_use(client, "other")


async def test_many_who_guess_hold_up_nobody(options: dict[str, Any]) -> None:
    options["connection_failed_authentication_delay_ms"] = 300
    async with proxied(**options) as proxy, trio.open_nursery() as nursery:

        async def guess(number: int) -> None:
            async with await proxy.client() as client:
                assert (await plain(client, f"guess {number}")).error_code

        for number in range(40):
            nursery.start_soon(guess, number)
        async with await proxy.client() as client:
            assert (await plain(client)).error_code == 0
        await eventually(lambda: proxy.stats.clients.logins.get(("PLAIN", "refused")) == 40, 30)


async def test_a_password_is_hashed_once_and_a_guess_each_time(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    hashed: list[str] = []
    real = Verifier.is_of

    def is_of(verifier: Verifier, password: str) -> bool:
        hashed.append(password)
        return real(verifier, password)

    async def lets_in(password: str) -> bool:
        play = Play()
        play.handshake("PLAIN")
        play.token(f"\0alice\0{password}".encode())
        await desk.serve(play.command, "client", "peer")
        play.resume()
        return play.gate.passed

    monkeypatch.setattr(Verifier, "is_of", is_of)
    desk = LoginWorker(config(**options))
    words = (PASSWORD, PASSWORD, "guess", "guess", PASSWORD)
    assert [await lets_in(word) for word in words] == [True, True, False, False, True]
    assert hashed == [PASSWORD, "guess", "guess"]
    changed = {key: make_verifier(key[1], "new", b"0123456789abcdef", 4096) for key in USERS.verifiers}
    write_credentials(options["sasl_credentials_location"], Credentials(b"d" * 32, changed))
    await trio.sleep(2)
    assert not await lets_in(PASSWORD)
    assert await lets_in("new")


@pytest.mark.parametrize(
    ("guesser", "other"), [("10.0.0.1:{0}", "10.0.0.2:1"), ("2001:db8:0:1::{0:x}:9", "2001:db8:0:2::1:9")]
)
async def test_guesses_from_one_sender_leave_a_processor_to_others(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, guesser: str, other: str
) -> None:
    begun: list[str] = []
    real = Verifier.is_of

    def is_of(verifier: Verifier, password: str) -> bool:
        begun.append(password)
        time.sleep(0.002)
        return real(verifier, password)

    async def log_in(password: str, address: str) -> bool:
        play = Play()
        play.handshake("PLAIN")
        play.token(f"\0alice\0{password}".encode())
        await desk.serve(play.command, "client", address)
        play.resume()
        return play.gate.passed

    monkeypatch.setattr(Verifier, "is_of", is_of)
    desk = LoginWorker(config(**options))
    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(log_in, f"guess {number}", guesser.format(number))
        while not begun:
            await trio.lowlevel.checkpoint()
        assert await log_in(PASSWORD, other)
        assert begun.index(PASSWORD) < 50
        assert len(begun) < 150
        nursery.cancel_scope.cancel()


def config(**given: Any) -> Config:
    return Config(bootstrap_servers=(Address("127.0.0.1", 9092),), **given)


async def test_what_is_missing_is_reported_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartupError, match=r"sasl.credentials.location: .*/users: No such file") as caught:
        LoginWorker(config(sasl_enabled_mechanisms=("PLAIN",), sasl_credentials_location=tmp_path / "users"))
    assert caught.value.exit_code == ExitCode.USAGE
    real = builtins.__import__

    def without_jwt(name: str, *more: Any) -> Any:
        if name == "kproxy.net.client_login.token_checker":
            raise ImportError
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without_jwt)
    with pytest.raises(StartupError, match=r"OAUTHBEARER .* needs PyJWT: pip install '\.\[oauth\]'"):
        LoginWorker(config(sasl_enabled_mechanisms=("OAUTHBEARER",), sasl_oauthbearer_jwks_endpoint_url="file:///k"))


async def test_without_mechanisms_nobody_has_to_log_in() -> None:
    assert open_logins(config()) is None


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://idp.example/keys", True), ("https://idp.example/keys", False), ("http://[::1]/k", False)],
)
async def test_keys_over_plain_http_are_warned_of(url: str, warned: bool) -> None:
    with capture_logs() as logged:
        LoginWorker(config(sasl_enabled_mechanisms=("OAUTHBEARER",), sasl_oauthbearer_jwks_endpoint_url=url))
    assert [row["url"] for row in logged if row["log_level"] == "warning"] == [url] * warned
