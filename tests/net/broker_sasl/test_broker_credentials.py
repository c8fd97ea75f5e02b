from pathlib import Path

import pytest

from kproxy.config.secrets import SecretLocation
from kproxy.net.broker_sasl.broker_credentials import Password, Token
from kproxy.net.broker_sasl.token_sources import StoredToken


async def test_a_password_is_read_for_each_login_and_no_nonce_comes_twice(tmp_path: Path) -> None:
    location = SecretLocation(path=tmp_path / "password")
    credentials = Password("SCRAM-SHA-512", "alice", location, "name", "place")
    with pytest.raises(OSError, match=r"place = .*password: No such file"):
        await credentials.mechanism()
    (tmp_path / "password").write_text("one")  # a test
    first, second = await credentials.mechanism(), await credentials.mechanism()
    assert first.first()[:10] == b"n,,n=alice"
    assert first.first() != second.first()
    assert (credentials.who, credentials.check) == ("'alice'", f"name and place = '{location}'")


async def test_a_token_and_its_extensions(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken \n")  # a test
    credentials = Token(StoredToken(SecretLocation(path=tmp_path / "token")), {"a": "b"})
    assert (await credentials.mechanism()).first() == b"n,,\x01auth=Bearer t0ken\x01a=b\x01\x01"
    assert credentials.check.startswith("upstream.sasl.oauthbearer.token.location = '/")
