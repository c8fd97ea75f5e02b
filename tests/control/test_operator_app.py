import gc
import json
import logging

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kproxy.config import Address, Config, ExitCode, StartupError
from kproxy.control.listeners import serve_http
from kproxy.proxy.client_stats import ClientStats
from kproxy.proxy.facts import UNPREPARED, not_ready_reasons
from kproxy.proxy.stats import Stats
from kproxy.proxy.upstream_stats import Outage, UpstreamStats
from tests.control.fake_facts import FakeFacts
from tests.control.fake_transactions import FakeTransactions

LOOPBACK = Address("127.0.0.1", 0)


def make_config(http: Address | None = LOOPBACK) -> Config:
    return Config(bootstrap_servers=(Address("kafka<1>", 9092),), http=http, instance_id="box-1")


async def get(address: Address, path: str, *headers: str) -> tuple[int, dict[str, str], str]:
    stream = await trio.open_tcp_stream(address.host, address.port)
    async with stream:
        lines = [f"GET {path} HTTP/1.1", f"Host: {address}", "Connection: close", *headers, "", ""]
        await stream.send_all("\r\n".join(lines).encode())
        answer = b"".join([part async for part in stream]).decode()
    head, _, body = answer.partition("\r\n\r\n")
    first, *rest = head.split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in rest), body


async def fetch(stats: Stats, path: str, *headers: str) -> tuple[int, dict[str, str], str]:
    """One request to a server of its own; leaves nothing behind, else the garbage check of pytest complains."""
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_http, make_config(), stats, FakeFacts(), FakeTransactions())
            answer = await get(address, path, *headers)
            nursery.cancel_scope.cancel()
    gc.collect()
    return answer


async def test_healthz_answers_while_not_ready() -> None:
    status, _, body = await fetch(Stats(), "/healthz")
    assert (status, body) == (200, "ok\n")


async def test_readyz_names_the_reasons() -> None:
    status, headers, body = await fetch(Stats(), "/readyz")
    assert status == 503
    assert headers["content-type"] == "application/json"
    reasons = ["not listening for clients", "no broker has been reached yet"]
    assert json.loads(body) == {"ready": False, "brokers": 0, "reasons": reasons}


async def test_readyz_when_ready() -> None:
    status, _, body = await fetch(Stats(upstream=UpstreamStats(reached=True, listening=True, brokers=3)), "/readyz")
    assert status == 200
    assert json.loads(body) == {"ready": True, "brokers": 3, "reasons": []}


@pytest.mark.parametrize(
    ("brokers", "errors", "reason"),
    [
        (
            3,
            ("cannot connect to a:1: Connection refused",),
            "no broker answers since 2026-11-30 20:50:00Z: cannot connect to a:1: Connection refused; "
            "tried again every 1.5 s",
        ),
        (
            0,
            ("a", "b", "c", "d", "e"),
            "no broker has been reached yet since 2026-11-30 20:50:00Z: a; b; c; and 2 more; tried again every 1.5 s",
        ),
    ],
)
def test_an_outage_says_since_when_and_why_and_what_is_tried_next(
    brokers: int, errors: tuple[str, ...], reason: str
) -> None:
    outage = Outage(1_796_071_800.5, errors, 1500)
    stats = UpstreamStats(listening=True, brokers=brokers, outage=outage)
    assert not_ready_reasons(stats) == [reason]


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({"reached": False}, ["no broker answers"]),
        ({"listening": False}, ["not listening for clients"]),
        ({"prepared": False}, [UNPREPARED]),
        ({"stopping": True}, ["shutting down"]),
        ({"stopping": True, "listening": False}, ["shutting down"]),
    ],
)
def test_the_reasons_are_what_is_missing(changed: dict[str, bool], reasons: list[str]) -> None:
    stats = UpstreamStats(**({"reached": True, "listening": True, "brokers": 1} | changed))  # type: ignore[arg-type]
    assert (stats.ready, not_ready_reasons(stats)) == (False, reasons)


async def test_metrics_page() -> None:
    status, headers, body = await fetch(Stats(clients=ClientStats(connections={"bootstrap": 7})), "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert 'kproxy_connections{listener="bootstrap"} 7.0\n' in body
    assert "process_resident_memory_bytes" in body


async def test_metrics_page_as_openmetrics() -> None:
    _, headers, body = await fetch(Stats(), "/metrics", "Accept: application/openmetrics-text;version=1.0.0")
    assert headers["content-type"].startswith("application/openmetrics-text")
    assert body.endswith("# EOF\n")


async def test_the_status_page_links_the_others() -> None:
    status, headers, body = await fetch(Stats(), "/")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    for path in ("/metrics", "/healthz", "/readyz"):
        assert f'href="{path}"' in body


async def test_unknown_page() -> None:
    assert (await fetch(Stats(), "/nothing"))[0] == 404


async def test_address_in_use_is_a_startup_error() -> None:
    [taken] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with taken:
        port = taken.socket.getsockname()[1]
        with pytest.raises(StartupError, match=rf"cannot listen on http = '127.0.0.1:{port}'") as caught:
            await serve_http(make_config(Address("127.0.0.1", port)), Stats(), FakeFacts(), FakeTransactions())
    assert caught.value.exit_code == ExitCode.CANNOT_BIND


async def test_host_name_that_does_not_exist_is_a_startup_error() -> None:
    with pytest.raises(StartupError, match="cannot listen on http"):
        await serve_http(make_config(Address("no-such-host.invalid", 0)), Stats(), FakeFacts(), FakeTransactions())


async def test_off_returns_at_once() -> None:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            assert (
                await nursery.start(serve_http, make_config(http=None), Stats(), FakeFacts(), FakeTransactions())
                is None
            )


async def test_garbage_harms_no_one_and_is_not_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_http, make_config(), Stats(), FakeFacts(), FakeTransactions())
            stream = await trio.open_tcp_stream(*address)
            async with stream:
                await stream.send_all(b"\x00\x00\x00\x10 no HTTP at all\r\n\r\n")
                async for _ in stream:
                    pass
            assert (await get(address, "/healthz"))[0] == 200
            nursery.cancel_scope.cancel()
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


async def test_cancelled_with_a_connection_open() -> None:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_http, make_config(), Stats(), FakeFacts(), FakeTransactions())
            stream = await trio.open_tcp_stream(*address)
            await wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        async with stream:
            assert await stream.receive_some() == b""
        with pytest.raises(OSError):
            await trio.open_tcp_stream(*address)
