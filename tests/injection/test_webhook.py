"""The webhook over HTTPS, as the API server calls it."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.config import Address, ExitCode, StartupError
from kproxy.injection.admission import LONGEST_BODY
from kproxy.injection.webhook import Listen, serve_webhook
from kproxy.injection.wishes import Sidecar
from kproxy.net.tls_context import TlsFiles
from tests.injection.reviews import UID, pod, review_of
from tests.net.certificates import Authority

NAME = "edge-kproxy-webhook.kafka.svc"
LOOPBACK = Address("127.0.0.1", 0)
DEFAULTS = Sidecar("kproxy:0.1.0")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(files: TlsFiles) -> AsyncIterator[int]:
    """The port; all clients are served."""
    async with listening(replace(files, ca=None)) as (port, _):
        yield port


@asynccontextmanager
async def listening(files: TlsFiles) -> AsyncIterator[tuple[int, Address]]:
    """The port for reviews, and the address of metrics and probes."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            reviews, pages = await nursery.start(serve_webhook, Listen(LOOPBACK, files, LOOPBACK), DEFAULTS)
            yield reviews.port, pages
            nursery.cancel_scope.cancel()


async def connect(authority: Authority, port: int, shown: TlsFiles | None = None) -> trio.SSLStream[trio.SocketStream]:
    """``shown``: the client's certificate."""
    context = ssl.create_default_context(cafile=authority.ca)
    if shown is not None:
        context.load_cert_chain(str(shown.certificate), shown.key)
    stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context, server_hostname=NAME)
    await stream.do_handshake()
    return stream


async def ask(
    authority: Authority,
    port: int,
    head: str,
    body: bytes = b"",
    length: int | None = None,
    shown: TlsFiles | None = None,
    framing: str | None = None,
) -> Any:
    """The status and the body of one response."""
    stream = await connect(authority, port, shown)
    framing = framing or f"Content-Length: {length or len(body)}"
    lines = [f"{head} HTTP/1.1", f"Host: {NAME}", "Connection: close", framing, "", ""]
    with trio.fail_after(60):
        await stream.send_all("\r\n".join(lines).encode() + body)
        answer = b""
        try:
            while part := await stream.receive_some():
                answer += part
        except trio.BrokenResourceError:
            pass  # the server does not wait for the rest of a body that it refuses
        await trio.aclose_forcefully(stream)
    first, _, rest = answer.partition(b"\r\n")
    return int(first.split()[1]), rest.partition(b"\r\n\r\n")[2]


async def test_a_pod_is_reviewed(authority: Authority) -> None:
    async with serving(authority.issue(NAME)) as port:
        status, body = await ask(authority, port, "POST /pods?timeout=5s", review_of(pod()))
        assert status == 200
        response = json.loads(body)["response"]
        assert (response["uid"], response["patchType"]) == (UID, "JSONPatch")
        # Only the path for namespaces takes pods without the label.
        plain = review_of(pod(labels={}))
        assert "patch" not in json.loads((await ask(authority, port, "POST /pods", plain))[1])["response"]
        assert "patch" in json.loads((await ask(authority, port, "POST /namespaces", plain))[1])["response"]


async def test_what_is_no_review_is_answered(authority: Authority) -> None:
    async with serving(authority.issue(NAME)) as port:
        status, body = await ask(authority, port, "POST /pods", b"no json")
        assert (status, json.loads(body)["response"]["allowed"]) == (400, False)
        assert (await ask(authority, port, "GET /healthz"))[0] == 200
        assert (await ask(authority, port, "GET /pods"))[0] == 405
        assert (await ask(authority, port, "GET /"))[0] == 404


async def test_a_body_that_announces_too_much_is_refused_before_it_is_read(authority: Authority) -> None:
    async with listening(replace(authority.issue(NAME), ca=None)) as (port, pages):
        status, body = await ask(authority, port, "POST /pods", length=LONGEST_BODY + 1)
        assert (status, json.loads(body)["response"]["status"]["code"]) == (413, 413)
        assert LONGEST_BODY == 1_048_576
        assert (await metrics(pages))['kproxy_webhook_requests_refused_total{reason="too_long"}'] == 1


async def test_a_body_that_announces_nothing_is_cut_off(authority: Authority) -> None:
    async with serving(authority.issue(NAME)) as port:
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        status, _ = await ask(authority, port, "POST /pods", chunk * 40, framing="Transfer-Encoding: chunked")
        assert status == 413


async def test_a_body_that_does_not_end_is_refused(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.injection.webhook._BODY_SECONDS", 0.2)
    async with listening(replace(authority.issue(NAME), ca=None)) as (port, pages):
        status, body = await ask(authority, port, "POST /pods", b"{", length=100)
        assert (status, json.loads(body)["response"]["status"]["message"]) == (
            408,
            "the request did not end within 0.2 s",
        )
        assert (await metrics(pages))['kproxy_webhook_requests_refused_total{reason="late"}'] == 1


async def test_bodies_that_do_not_end_keep_no_other_from_being_reviewed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproxy.injection.webhook._BODY_SECONDS", 1000)
    async with serving(authority.issue(NAME)) as port, AsyncExitStack() as stack:
        head = f"POST /pods HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 1000\r\n\r\n{{".encode()
        for _ in range(40):
            slow = await connect(authority, port)
            stack.push_async_callback(trio.aclose_forcefully, slow)
            await slow.send_all(head)
        assert (await ask(authority, port, "POST /pods", review_of(pod())))[0] == 200


async def test_where_bodies_take_too_much_memory_the_oldest_gives_way(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kproxy.injection.webhook._MOST_BYTES", 100_000)
    async with listening(replace(authority.issue(NAME), ca=None)) as (port, pages):
        head = f"POST /pods HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 80000\r\n\r\n".encode()
        first, second = await connect(authority, port), await connect(authority, port)
        await first.send_all(head + bytes(60_000))
        await second.send_all(head + bytes(60_000))
        assert (await first.receive_some()).startswith(b"HTTP/1.1 503")
        await trio.aclose_forcefully(second)
        name = 'kproxy_webhook_requests_refused_total{reason="disconnected"}'
        while (found := await metrics(pages))[name] == 0:  # noqa: ASYNC110 - the end of a connection has to arrive
            await trio.sleep(0.01)
        assert found['kproxy_webhook_requests_refused_total{reason="crowded"}'] == 1
        assert (await ask(authority, port, "POST /pods", review_of(pod())))[0] == 200
        await trio.aclose_forcefully(first)
    assert not caplog.records


async def test_reviews_are_counted_by_their_result(authority: Authority) -> None:
    async with listening(replace(authority.issue(NAME), ca=None)) as (port, pages):
        assert await page(pages, "/healthz") == "ok\n"
        wrong = pod(annotations={"kproxy.io/memory-limit": "much"})
        for body in (review_of(pod()), review_of(pod(labels={})), review_of(wrong), b"no json", b"[]"):
            await ask(authority, port, "POST /pods", body)
        found = await metrics(pages)
        results = ("injected", "left_alone", "refused", "malformed")
        counts = [found[f'kproxy_webhook_reviews_total{{result="{result}"}}'] for result in results]
        assert counts == [1, 1, 1, 2]
        assert found["kproxy_webhook_review_seconds_count"] == 5


async def test_with_an_authority_only_its_clients_are_served(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").issue("api", to="stranger")
    async with listening(authority.issue(NAME)) as (port, _):
        shown = authority.issue("api", to="apiserver")
        assert (await ask(authority, port, "POST /pods", review_of(pod()), shown=shown))[0] == 200
        for wrong in (None, stranger):
            with pytest.raises((trio.BrokenResourceError, IndexError)):
                await ask(authority, port, "POST /pods", review_of(pod()), shown=wrong)


async def page(address: Address, path: str) -> str:
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join([part async for part in stream]).decode()
    assert answer.startswith("HTTP/1.1 200")
    return answer.partition("\r\n\r\n")[2]


async def metrics(address: Address) -> dict[str, float]:
    rows = [line.rpartition(" ") for line in (await page(address, "/metrics")).splitlines() if line[0] != "#"]
    return {name: float(value) for name, _, value in rows}


async def test_a_renewed_certificate_is_used_without_a_restart(authority: Authority) -> None:
    async def serial(port: int) -> Any:
        stream = await connect(authority, port)
        certificate: Any = stream.getpeercert()
        await trio.aclose_forcefully(stream)
        return certificate["serialNumber"]

    async with serving(authority.issue(NAME)) as port:
        before = await serial(port)
        authority.issue(NAME)
        while await serial(port) == before:  # noqa: ASYNC110 - new connections read the file
            await trio.sleep(0.1)


async def test_a_certificate_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    with pytest.RaisesGroup(StartupError, flatten_subgroups=True, allow_unwrapped=True) as caught:
        async with serving(TlsFiles(tmp_path / "none.crt", tmp_path / "none.key")):
            pass
    [error] = caught.value.exceptions if isinstance(caught.value, BaseExceptionGroup) else [caught.value]
    assert str(error).startswith(f"--certificate: {tmp_path}/none.crt: No such file")
    assert error.exit_code == ExitCode.USAGE
