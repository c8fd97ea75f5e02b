"""Which network each connection uses, and that missing files are reported at the start."""

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.config import Address, Config, ExitCode, StartupError
from kproxy.config.secrets import SecretLocation
from kproxy.net.broker_sasl.sasl_network import SaslNetwork
from kproxy.net.broker_sasl.sasl_networks import Networks, open_networks
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.stats import Stats


def opened(**options: Any) -> Networks:
    given = {"upstream_security_protocol": "sasl_plaintext", **options}
    return open_networks(Config(bootstrap_servers=(Address("kafka", 9092),), **given), Stats())


@pytest.fixture
def login(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "password").write_text("geheim")
    location = SecretLocation(path=tmp_path / "password")
    return {"upstream_sasl_username": "alice", "upstream_sasl_password_location": location}


ENDPOINT = {
    "upstream_sasl_mechanism": "OAUTHBEARER",
    "upstream_sasl_oauthbearer_token_endpoint_url": "https://issuer/token",
    "upstream_sasl_oauthbearer_client_id": "kproxy",
    "upstream_sasl_oauthbearer_client_secret_location": SecretLocation(variable="SECRET"),
}


async def test_without_sasl_all_go_the_same_way() -> None:
    networks = opened(upstream_security_protocol="plaintext")
    assert isinstance(networks.own, SocketNetwork)
    assert networks.for_client("User:alice") is networks.own


async def test_plain_text_is_warned_of(login: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    opened(**login)
    assert "plain text" not in capsys.readouterr().out
    opened(**login, upstream_sasl_mechanism="PLAIN")
    assert "travel to brokers in plain text" in capsys.readouterr().out
    opened(**login, upstream_sasl_mechanism="PLAIN", upstream_security_protocol="sasl_ssl")
    assert "plain text" not in capsys.readouterr().out


async def test_who_comes_as_whom(login: dict[str, Any]) -> None:
    networks = opened(**login)
    assert isinstance(networks.own, SaslNetwork)
    assert networks.for_client("User:alice") is networks.own
    networks = opened(**login, upstream_sasl_identity="client")
    assert isinstance(networks.own, SaslNetwork)
    assert isinstance(networks.for_client("User:alice"), SocketNetwork)


@pytest.mark.parametrize("options", [ENDPOINT, {"upstream_sasl_mechanism": "AWS_MSK_IAM"}])
async def test_tokens_are_kept_fresh_until_the_end(options: dict[str, Any]) -> None:
    networks = opened(**options)
    with trio.move_on_after(0):
        await networks.run()


async def test_a_file_that_is_missing_is_reported_at_the_start(login: dict[str, Any]) -> None:
    login["upstream_sasl_password_location"] = SecretLocation(path=Path("/none/password"))
    with pytest.raises(
        StartupError, match=r"upstream\.sasl\.password\.location = /none/password: No such file"
    ) as told:
        opened(**login)
    assert told.value.exit_code == ExitCode.USAGE


async def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    monkeypatch.delitem(sys.modules, "kproxy.net.broker_sasl.msk_iam", raising=False)
    with pytest.raises(StartupError, match=r"needs the package aws_msk.*pip install '\.\[msk\]'"):
        opened(upstream_sasl_mechanism="AWS_MSK_IAM")
