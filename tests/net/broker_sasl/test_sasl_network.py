"""Logins at a fake broker that asks for them: on new connections, and on those that are in use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest
from kproxy.codec.messages import ErrorCode
from kproxy.config import Address, Config
from kproxy.config.secrets import SecretLocation
from kproxy.net.broker_sasl.sasl_networks import open_networks
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.network import Network
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import ClusterConfig, FakeServer, SaslRules, open_fake_cluster
from tests.net.harness import eventually, fetch, produce, proxied, values_in

RULES = SaslRules(users={"alice": "secret"}, tokens={"t0ken": "alice"})
#: Due again at once; a broker that hung up would do so because the machine was slow.
ENDING = SaslRules(users={"alice": "secret"}, max_reauth_ms=1, hangs_up=False)
LASTING = SaslRules(users={"alice": "secret"}, max_reauth_ms=30, hangs_up=False)


def put(path: Path, text: str) -> None:
    """In a function, for linters that want no files in async tests."""
    path.write_text(text)


def remove(path: Path) -> None:
    path.unlink()


@pytest.fixture
def password(tmp_path: Path) -> Path:
    put(tmp_path / "password", "secret\n")
    return tmp_path / "password"


def login(password: Path, mechanism: str = "SCRAM-SHA-256", **more: Any) -> dict[str, Any]:
    """The options."""
    return {
        "upstream_security_protocol": "sasl_plaintext",
        "upstream_sasl_mechanism": mechanism,
        "upstream_sasl_username": "alice",
        "upstream_sasl_password_location": SecretLocation(password),
        **more,
    }


@asynccontextmanager
async def broker(rules: SaslRules | None, stats: Stats, **options: Any) -> AsyncIterator[tuple[FakeServer, Network]]:
    """A fake broker, and the network to it."""
    async with open_fake_cluster(config=ClusterConfig(sasl=rules)) as fake:
        config = Config(bootstrap_servers=(place(fake),), **options)
        yield fake, open_networks(config, stats).own


def place(fake: FakeServer) -> Address:
    return Address("127.0.0.1", fake.cluster.brokers[1].port)


async def ask(network: Network, fake: FakeServer) -> MetadataResponse:
    client = await BrokerClient.open(network, place(fake), 5000, 5000)
    answer = await client.call(MetadataRequest(topics=[]), MetadataResponse)
    client.close()
    assert isinstance(answer, MetadataResponse)
    return answer


async def call_on(client: BrokerClient) -> None:
    """After the end of a login or two: a renewal may be in flight already."""
    for _ in range(5):
        await trio.sleep(ENDING.max_reauth_ms / 1000)
        await client.call(MetadataRequest(topics=[]), MetadataResponse)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_connection_is_logged_in_with_the_password(password: Path, mechanism: str) -> None:
    stats = Stats()
    async with broker(RULES, stats, **login(password, mechanism)) as (fake, network):
        assert len((await ask(network, fake)).brokers) == 1
        assert isinstance(network.wall(), float)
        (listener,) = await network.listen("127.0.0.1", 0, 1)
        listener.close()
    assert not stats.upstream.errors


async def test_a_token_from_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    options: dict[str, Any] = {"upstream_sasl_oauthbearer_token_location": SecretLocation(path)}
    options |= {"upstream_sasl_oauthbearer_extensions": ("logicalCluster=lkc-1",)}
    async with broker(RULES, Stats(), **login(path, "OAUTHBEARER", **options)) as (fake, network):
        with pytest.raises(LoginRefused, match=r"token\.location = .*/token: No such file"):
            await ask(network, fake)
        put(path, "another")
        with pytest.raises(LoginRefused, match=r"refused the token \(OAUTHBEARER\): .*check upstream\.sasl\.oauthb"):
            await ask(network, fake)
        put(path, "t0ken")
        assert len((await ask(network, fake)).brokers) == 1


async def test_a_wrong_password_is_reported_and_counted_and_a_new_one_is_used(
    password: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stats = Stats()
    async with broker(RULES, stats, **login(password)) as (fake, network):
        await ask(network, fake)
        put(password, "mistaken")
        for _ in range(2):
            with pytest.raises(
                LoginRefused, match=r"login at 127.0.0.1:\d+: the broker refused 'alice' \(SCRAM-SHA-256\)"
            ) as told:
                await ask(network, fake)
            assert "mistaken" not in str(told.value)
        assert stats.upstream.errors == {"authentication": 2}
        put(password, "secret")
        await ask(network, fake)


async def test_a_mechanism_that_is_not_offered_is_named(password: Path) -> None:
    async with broker(RULES, Stats(), **login(password, "SCRAM-SHA-512")) as (fake, network):
        with pytest.raises(LoginRefused, match="not offer SCRAM-SHA-512, but PLAIN, SCRAM-SHA-256, OAUTHBEARER: set"):
            await ask(network, fake)


async def test_a_port_without_sasl_is_named(password: Path) -> None:
    async with broker(None, Stats(), **login(password)) as (fake, network):
        with pytest.raises(LoginRefused, match="takes no SASL: give the port of a SASL listener"):
            await ask(network, fake)


async def test_a_port_with_sasl_is_named_to_who_uses_none() -> None:
    async with broker(RULES, Stats()) as (fake, network):
        with pytest.raises(OSError, match=r"does it want SASL, .*upstream\.security\.protocol"):
            await ask(network, fake)


async def test_a_broker_that_does_not_answer_is_given_up(password: Path) -> None:
    (listener,) = await SocketNetwork().listen("127.0.0.1", 0, 8)
    config = Config(bootstrap_servers=(Address("127.0.0.1", listener.port),), **login(password))
    with pytest.raises(OSError, match="did not"):
        await open_networks(config, Stats()).own.connect("127.0.0.1", listener.port, 50)
    listener.close()


async def test_an_own_connection_renews_its_login_before_the_next_request(password: Path) -> None:
    async with broker(ENDING, Stats(), **login(password)) as (fake, network):
        client = await BrokerClient.open(network, place(fake), 5000, 5000)
        (mine,) = fake.cluster.logins.by_connection.values()
        before = mine.count
        for count in (1, 2, 3):
            await trio.sleep(ENDING.max_reauth_ms / 1000)
            await client.call(MetadataRequest(topics=[]), MetadataResponse)
            assert mine.count >= before + count
        client.close()


async def test_a_login_that_cannot_be_renewed_ends_the_connection(password: Path) -> None:
    stats = Stats()
    async with broker(ENDING, stats, **login(password)) as (fake, network):
        client = await BrokerClient.open(network, place(fake), 5000, 5000)
        put(password, "mistaken")
        with pytest.raises(OSError, match="refused 'alice'"):
            await call_on(client)
        assert client.closed
        assert stats.upstream.errors == {"authentication": 1}


async def test_a_password_that_is_missing_for_a_moment_costs_nothing_while_the_login_lasts(
    password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproxy.net.broker_sasl.renewing_io._DUE", 0.0)
    stats = Stats()
    rules = SaslRules(users={"alice": "secret"}, max_reauth_ms=60_000)
    async with broker(rules, stats, **login(password)) as (fake, network):
        client = await BrokerClient.open(network, place(fake), 5000, 5000)
        remove(password)
        await client.call(MetadataRequest(topics=[]), MetadataResponse)
        await client.call(MetadataRequest(topics=[]), MetadataResponse)
        assert stats.upstream.errors == {"authentication": 1}
        client.close()


async def test_without_a_password_no_request_goes_out_after_the_end_of_the_login(password: Path) -> None:
    async with broker(ENDING, Stats(), **login(password)) as (fake, network):
        client = await BrokerClient.open(network, place(fake), 5000, 5000)
        remove(password)
        with pytest.raises(OSError, match="the login has expired, and could not be renewed"):
            await call_on(client)
        assert client.closed


class TestProxy:
    async def test_clients_that_know_no_sasl_are_served(self, password: Path) -> None:
        async with proxied(sasl=RULES, **login(password)) as proxy:
            proxy.brokers.create_topic("t", 1)
            async with await proxy.client(1) as client:
                said = await client.call(produce("t", b"x"), 7)
                assert said.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert values_in(proxy.brokers, "t") == [b"x"]

    async def test_logins_are_renewed_between_pipelined_requests_none_of_which_is_lost_or_overtaken(
        self, password: Path
    ) -> None:
        async with proxied(sasl=LASTING, **login(password)) as proxy:
            proxy.brokers.create_topic("t", 1)
            sent = 0
            logins = proxy.brokers.logins.by_connection
            async with await proxy.client(1) as client:
                while max(login.count for login in logins.values()) < 5:
                    for _ in range(5):
                        await client.send(produce("t", b"%d" % sent + b"." * 3000, timeout_ms=60_000), 7)
                        sent += 1
                    for _ in range(5):
                        said = await client.receive()
                        assert said.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert [int(value.split(b".")[0]) for value in values_in(proxy.brokers, "t") if value] == list(range(sent))
            assert not proxy.stats.upstream.errors

    async def test_a_login_is_renewed_while_the_client_only_waits(self, password: Path) -> None:
        async with proxied(sasl=LASTING, **login(password)) as proxy:
            proxy.brokers.create_topic("t", 1)
            async with await proxy.client(1) as client:
                await client.call(produce("t", b"x"), 7)
                await eventually(lambda: any(login.count >= 3 for login in proxy.brokers.logins.by_connection.values()))
                assert (await client.call(fetch("t"), 11)).responses[0].partitions[0].error_code == ErrorCode.NONE

    async def test_a_client_that_logs_in_where_none_is_asked_to_gets_an_error(self, password: Path) -> None:
        async with proxied(sasl=RULES, **login(password)) as proxy, await proxy.client(1) as client:
            for version in (0, 1):
                said = await client.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
                assert said.error_code == ErrorCode.ILLEGAL_SASL_STATE
            said = await client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
            assert (said.error_code, said.error_message[:16]) == (ErrorCode.ILLEGAL_SASL_STATE, "there is no SASL")

    async def test_clients_may_log_in_at_the_broker_themselves(self, password: Path) -> None:
        rules = SaslRules(users={"alice": "secret", "bob": "bobs"})
        options = login(password, upstream_sasl_identity="client")
        async with proxied(sasl=rules, **options) as proxy:
            proxy.brokers.create_topic("t", 1)
            async with await proxy.client(1) as client:
                assert (await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == ErrorCode.NONE
                said = await client.call(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bobs"), 1)
                assert said.error_code == ErrorCode.NONE
                said = await client.call(produce("t", b"x"), 7)
                assert said.responses[0].partition_responses[0].error_code == ErrorCode.NONE
                names = [login.name for login in proxy.brokers.logins.by_connection.values()]
                assert names.count("bob") == 1
                assert "alice" in names
            async with await proxy.client(1) as old:
                assert (await old.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)).error_code == ErrorCode.NONE
                await old.stream.send_all(b"\0\0\0\x09\0bob\0bobs")
                assert await old.frame() == b""
                said = await old.call(produce("t", b"y"), 3)
                assert said.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            async with await proxy.client(1) as nobody:
                await nobody.send(produce("t", b"z"), 7)
                assert await nobody.ended()
            assert values_in(proxy.brokers, "t") == [b"x", b"y"]

    async def test_a_client_that_logged_in_itself_ends_with_its_brokers_connection(self, password: Path) -> None:
        async with proxied(sasl=RULES, **login(password, upstream_sasl_identity="client")) as proxy:
            async with await proxy.client(1) as client:
                await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                await client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1)
                await proxy.fake.stop_broker(1)
                await proxy.fake.start_broker(1)
                await client.send(MetadataRequest(topics=[]), 1)
                assert await client.ended()
            assert proxy.stats.upstream.connections_open == 0
