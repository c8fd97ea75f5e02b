"""Each client is whom the file says at the brokers, also when kproxy sends again for it."""

from pathlib import Path
from typing import Any

import pytest

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.config.secrets import SecretLocation
from kproxy.net.broker_sasl.identities import IdentityNetworks
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused
from kproxy.proxy.upstream_stats import UpstreamStats
from kproxy.testing.fake_broker import CloseAfter, SaslRules
from tests.net.harness import produce, proxied, values_in

RULES = SaslRules(users={"alice": "secret", "bob": "bobs"})
BOB = "{{principal: '{}', username: bob, password.location: {}/bob}}"


def put(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def identities(directory: Path, *principals: str) -> Path:
    put(directory / "bob", "bobs")
    rows = ", ".join(BOB.format(principal, directory) for principal in principals)
    return put(directory / "identities.yaml", f"identities: [{rows}]")


def options(directory: Path, *principals: str) -> dict[str, Any]:
    return {
        "upstream_security_protocol": "sasl_plaintext",
        "upstream_sasl_mechanism": "SCRAM-SHA-256",
        "upstream_sasl_username": "alice",
        "upstream_sasl_password_location": SecretLocation(put(directory / "alice", "secret")),
        "upstream_sasl_identity": "mapped",
        "upstream_sasl_identities_file": identities(directory, *principals),
    }


@pytest.mark.parametrize("principal", ["User:ANONYMOUS", "*"])
async def test_a_client_is_whom_the_file_says(tmp_path: Path, principal: str) -> None:
    async with proxied(sasl=RULES, **options(tmp_path, principal)) as proxy:
        proxy.brokers.create_topic("t", 1)
        async with await proxy.client(1) as client:
            said = await client.call(produce("t", b"x"), 7)
            assert said.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert "bob" in [login.name for login in proxy.brokers.logins.by_connection.values()]


async def test_what_is_sent_again_is_the_clients_too(tmp_path: Path) -> None:
    async with proxied(sasl=RULES, **options(tmp_path, "*")) as proxy:
        proxy.brokers.create_topic("t", 1)
        names: list[str | None] = []

        def fault(call: Any) -> CloseAfter | None:
            names.append(proxy.brokers.logins.by_connection[call.connection].name)
            return CloseAfter() if len(names) == 1 else None

        proxy.brokers.control(ApiKey.PRODUCE, fault)
        async with await proxy.client(1) as client:
            said = await client.call(produce("t", b"x"), 7)
            assert said.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert values_in(proxy.brokers, "t") == [b"x"]
        assert set(names) == {"bob"}
        assert len(names) > 1


async def test_a_client_that_the_file_does_not_name_gets_nowhere(tmp_path: Path) -> None:
    async with proxied(sasl=RULES, **options(tmp_path, "User:orders")) as proxy:
        async with await proxy.client(1) as client:
            await client.send(produce("t", b"x"), 7)
            assert await client.ended()
        assert "t" not in proxy.brokers.topics
        assert proxy.stats.upstream.errors["authentication"] == 1


async def test_another_file_counts_for_new_connections(tmp_path: Path) -> None:
    file = identities(tmp_path, "User:a")
    networks = IdentityNetworks(SocketNetwork(), "PLAIN", file, UpstreamStats())
    nobody = networks.of("User:b")
    with pytest.raises(LoginRefused, match=r"'User:b' is nobody at the brokers: see upstream\.sasl\.identities\.file"):
        await nobody.connect("127.0.0.1", 1, 10)
    (listener,) = await nobody.listen("127.0.0.1", 0, 1)
    listener.close()
    assert nobody.wall() > 0
    first = networks.of("User:a")
    assert networks.of("User:a") is first
    identities(tmp_path, "User:a", "User:b")
    await networks.file.reload()
    assert networks.of("User:a") is not first
    assert networks.of("User:b") is networks.of("User:b")
