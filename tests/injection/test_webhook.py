"""The webhook over HTTPS, as the API server calls it."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.config import Address, ExitCode, StartupError
from kproxy.injection.admission import LONGEST_BODY
from kproxy.injection.webhook import serve_webhook
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
    """The port."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_webhook, LOOPBACK, files, DEFAULTS)
            yield address.port
            nursery.cancel_scope.cancel()


async def connect(authority: Authority, port: int) -> trio.SSLStream[trio.SocketStream]:
    context = ssl.create_default_context(cafile=authority.ca)
    stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context, server_hostname=NAME)
    await stream.do_handshake()
    return stream


async def ask(authority: Authority, port: int, head: str, body: bytes = b"", length: int | None = None) -> Any:
    """The status and the body of one response."""
    stream = await connect(authority, port)
    lines = [f"{head} HTTP/1.1", f"Host: {NAME}", "Connection: close", f"Content-Length: {length or len(body)}", "", ""]
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


async def test_a_body_that_is_too_long_is_refused(authority: Authority) -> None:
    async with serving(authority.issue(NAME)) as port:
        status, body = await ask(authority, port, "POST /pods", b" " * (LONGEST_BODY + 1))
        assert (status, json.loads(body)["response"]["status"]["code"]) == (413, 413)


async def test_a_body_that_does_not_end_is_refused(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.injection.webhook._BODY_SECONDS", 0.2)
    async with serving(authority.issue(NAME)) as port:
        status, body = await ask(authority, port, "POST /pods", b"{", length=100)
        assert (status, json.loads(body)["response"]["status"]["message"]) == (400, "the request is not JSON")


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
