"""Tokens for MSK are signed without a network, if there are credentials."""

import base64
from pathlib import Path

import pytest

from kproxy.net.broker_sasl.msk_iam import signed_tokens


async def test_a_token_signed_with_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    issued = await signed_tokens("eu-central-1")()
    text = base64.urlsafe_b64decode(issued.token + "==").decode()
    assert text.startswith("https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "geheim" not in text
    assert 0 < issued.lifetime <= 900


async def test_without_credentials_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(OSError, match=r"no token for MSK in eu-central-1: .*; see AWS's own credentials"):
        await signed_tokens("eu-central-1")()
