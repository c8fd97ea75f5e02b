"""The control API over HTTPS, as clients on other hosts reach it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.client import ControlClient, ControlError, ControlUnreachable
from kproxy.config import Address, Config, StartupError
from kproxy.control.listeners import serve_control
from kproxy.net.tls_context import control_context
from kproxy.proxy.certificate_stats import CertificateStats
from tests.control.fake_transactions import FakeTransactions
from tests.net.certificates import Authority

TOKEN = "correct-horse-battery"
SECONDS = 10.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def configured(authority: Authority, **changes: Any) -> Config:
    token = authority.directory / "token"
    token.write_text(TOKEN)
    config = Config(
        bootstrap_servers=(Address("kafka", 9092),), control_http=Address("127.0.0.1", 0), control_token_file=token
    )
    return replace(config, **changes)


def secured(authority: Authority) -> Config:
    files = authority.issue("127.0.0.1")
    return configured(authority, control_ssl_certificate_location=files.certificate, control_ssl_key_location=files.key)


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[int]:
    """The port."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def serve(task_status: Any) -> None:
                tls = control_context(config, CertificateStats())
                await serve_control(config, FakeTransactions(), tls=tls, task_status=task_status)

            address = await nursery.start(serve)
            yield address.port
            nursery.cancel_scope.cancel()


def client(authority: Authority, port: int, **changes: Any) -> ControlClient:
    given = {"token_file": authority.directory / "token", "ca_file": authority.ca, "timeout": SECONDS, **changes}
    return ControlClient(url=f"https://127.0.0.1:{port}", **given)


async def test_a_client_with_the_token_and_the_authority(authority: Authority) -> None:
    async with serving(secured(authority)) as port:

        def work() -> None:
            with pytest.raises(ControlUnreachable, match="its certificate is not accepted: "):
                client(authority, port, ca_file=None).list()
            assert client(authority, port).begin(client_id="loader").transactional_id == "kproxy-loader"
            with pytest.raises(ControlError, match="Send the token"):
                client(authority, port, token_file=None).list()

        await trio.to_thread.run_sync(work)


async def test_one_side_without_tls(authority: Authority) -> None:
    def clear(port: int) -> None:
        with pytest.raises(ControlUnreachable, match="is https:// in the URL right"):
            ControlClient(url=f"http://127.0.0.1:{port}", timeout=SECONDS).list()

    def tls(port: int) -> None:
        with pytest.raises(ControlUnreachable, match="it speaks no TLS: use http://"):
            client(authority, port).list()

    async with serving(secured(authority)) as port:
        await trio.to_thread.run_sync(clear, port)
    async with serving(configured(authority)) as port:
        await trio.to_thread.run_sync(tls, port)


async def test_a_certificate_that_is_replaced(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "next").mkdir()
    following = Authority(tmp_path / "next")
    (following.directory / "token").write_text(TOKEN)
    config = secured(authority)
    async with serving(config) as port:
        await trio.to_thread.run_sync(client(authority, port).list)
        files = following.issue("127.0.0.1")
        for new, old in ((files.key, config.control_ssl_key_location), (files.certificate, None)):
            assert new is not None
            new.replace(old or config.control_ssl_certificate_location or "")
        while True:
            try:
                await trio.to_thread.run_sync(client(following, port).list)
            except ControlUnreachable:
                await trio.sleep(0.1)
            else:
                break


async def test_without_a_certificate_it_is_in_the_clear(authority: Authority) -> None:
    assert control_context(configured(authority), CertificateStats()) is None


async def test_a_certificate_that_can_not_be_used_ends_the_start(authority: Authority) -> None:
    config = configured(authority, control_ssl_certificate_location=authority.directory / "none")
    with pytest.raises(StartupError, match=r"control\.ssl: .*none: No such file"):
        control_context(config, CertificateStats())
