"""HTTP requests to kproxy's listeners: the control API, the status page's, the metrics page, and the webhook."""

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import trio
from structlog.testing import capture_logs

from kproxy.codec.messages import ErrorCode
from kproxy.control.asgi_server import _GONE, _Connection
from kproxy.control.control_api import make_api
from kproxy.control.guard import Guard, Rules, by_rules
from kproxy.control.page_guard import PageRules, page_refusal
from kproxy.control.places import Limits, Places
from kproxy.injection.webhook import make_app, make_pages
from kproxy.injection.webhook_stats import WebhookStats
from kproxy.injection.wishes import Sidecar
from kproxy.txn.described import Described, Listing
from kproxy.txn.txn_error import TxnError
from verification.fuzz.choices import Choices
from verification.fuzz.target import Bound, Finding, Target, expect, without_threads

_DEFAULTS: Final = Sidecar("registry.example/kproxy:1", "broker:9092")
_TOKEN: Final = b"secret"


_KNOWN: Final = Described("a", "Ongoing", "c", 1, 2, None, 1000, (("t", 0),), ("g",), (), "box", None)


class _Control:
    """A service of transactions that does whatever it is asked, unless the id's name begins with an x."""

    async def list(self) -> Listing:
        return Listing()

    def __getattr__(self, name: str) -> Any:
        async def call(named: object = "", *positional: object, **more: object) -> Described:
            if str(named).startswith("x"):
                raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"{name} of {named} {positional} {more}")
            return _KNOWN

        return call


class _Stream(trio.abc.Stream):
    """What a client sends, in pieces, and what it is sent."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self.sent = bytearray()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._pieces.pop(0) if self._pieces else b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += data

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class _Socket:
    """The ends of a connection within this host."""

    family = socket.AF_INET

    def getpeername(self) -> tuple[str, int]:
        return ("127.0.0.1", 40_000)

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 9_000)


class _Errors(logging.Handler):
    """The errors that a server logs, each of which is a flaw of kproxy's."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record)


_REFUSED: Final[list[str]] = []
_API: Final[Any] = make_api(_Control())
_PAGE_RULES: Final = PageRules(frozenset({"localhost"}), _TOKEN, is_open=True)
#: What is asked, each made for one connection: what one was answered must not be seen by the next.
_APPS: Final[Sequence[Callable[[], Any]]] = (
    lambda: Guard(_API, by_rules(Rules(None, None)), _REFUSED.append),
    lambda: Guard(_API, lambda scope: page_refusal(scope, _PAGE_RULES), _REFUSED.append),
    lambda: make_pages(WebhookStats()),
    lambda: make_app(_DEFAULTS, WebhookStats()),
)


def check_http(data: bytes) -> None:
    """A byte that chooses the application, one for the size of the pieces that arrive, then what a client sends."""
    said = Choices(data)
    _REFUSED.clear()
    app, size = _APPS[said.number() % len(_APPS)](), 1 + said.number() * 16
    sent = said.rest()
    stream = _Stream([sent[start : start + size] for start in range(0, len(sent), size)])
    errors, log = _Errors(), logging.getLogger("http")
    log.addHandler(errors)
    log.propagate, before = False, log.propagate
    try:
        with capture_logs(), without_threads():
            trio.run(partial(_serve, app, stream))
    finally:
        log.propagate = before
        log.removeHandler(errors)
    if errors.found:
        record = errors.found[0]
        raise Finding(record.getMessage()) from (record.exc_info[1] if record.exc_info else None)
    expect(not stream.sent or stream.sent.startswith(b"HTTP/1.1 "), "a response that is none")
    expect(b"HTTP/1.1 500" not in stream.sent, "a request is answered by an internal error")


async def _serve(app: Any, stream: _Stream) -> None:
    refused: list[str] = []
    place = Places(Limits(4, 4), refused.append).take("127.0.0.1")
    if place is None:
        raise Finding("the first connection is refused")
    try:
        await _Connection(app, stream, _Socket(), place, refused.append).run()  # type: ignore[arg-type]
    except _GONE:
        pass
    finally:
        place.leave()


def _asked(line: str, *headers: str, body: str = "") -> bytes:
    """A request."""
    return "\r\n".join((f"{line} HTTP/1.1", "Host: localhost", *headers, "", body)).encode()


_JSON: Final = "Content-Type: application/json"
_OPEN_METRICS: Final = "Accept: application/openmetrics-text; version="
_OWNER: Final = '{"producer_id":1,"producer_epoch":2}'
_OWN: Final = ("Origin: http://localhost", "Sec-Fetch-Site: same-origin", "Authorization: Bearer secret")
_REQUESTS: Final = (
    *(
        _asked(f"POST /v1/{path}", _JSON, f"Content-Length: {len(body)}", body=body)
        for path, body in (
            ("transactions", '{"client_id":"c","timeout_ms":5}'),
            ("transactions/x", "{}"),
            ("transactions/a/commit", f'{{"owner":{_OWNER},"members":["m"],"batch_id":"b"}}'),
            ("transactions/a/abort", f'{{"owner":{_OWNER},"abort_others":true}}'),
            ("transactions/a/prepare", f'{{"owner":{_OWNER}}}'),
            ("transactions/a/initialize", '{"client_id":"c","timeout_ms":5}'),
            ("transactions/a/members/m/begin", f'{{"client_id":"c","owner":{_OWNER}}}'),
            ("transactions/a/members/m/prepare", '{"records":3}'),
            ("transactions/a/members/m/abort", ""),
            ("producers/7/reject", "{}"),
        )
    ),
    _asked("GET /v1/transactions?state=Ongoing&undecided=true"),
    _asked("GET /v1/openapi.json") + _asked("GET /v1/transactions/a%2Fb"),
    _asked("POST /v1/transactions", _JSON, "Content-Length: 25", body='{"transactional_id": "a"}'),
    _asked(
        "POST /v1/transactions/a/commit",
        *(_JSON, "Transfer-Encoding: chunked"),
        body='12\r\n{"members": ["m"]}\r\n0\r\n\r\n',
    ),
    _asked("POST /v1/transactions/a/abort", *_OWN, "Content-Length: 0"),
    _asked("HEAD /v1/transactions").replace(b"1.1", b"1.0").replace(b"localhost", b"[::1]:9000"),
    _asked("GET /metrics", f"{_OPEN_METRICS}1.0.0; charset=utf-8,text/plain;q=0.5", "Accept-Encoding: gzip"),
    _asked("GET /metrics", f"{_OPEN_METRICS}9; escaping=allow-utf-8"),
    _asked("GET /healthz", "Connection: close"),
    _asked("POST /inject", "Expect: 100-continue", "Content-Length: 2", body="{}"),
)


def _http_seeds() -> Iterator[bytes]:
    for app in range(4):
        for request in _REQUESTS:
            yield bytes([app, 255]) + request
        yield bytes([app, 1]) + _REQUESTS[-1 - app]


_HEADERS: Final = (
    *(b"GET ", b"POST ", b"HEAD ", b"OPTIONS ", b" HTTP/1.1\r\n", b"Host: ", b"\r\n\r\n", b"Content-Length: "),
    *(b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: close", b"Upgrade: h2c", b"Accept: "),
    *(
        b"/v1/transactions",
        b"/members/",
        b"/commit",
        b"/prepare",
        b"/begin",
        b"/initialize",
        b"/v1/producers/1/reject",
    ),
    *(
        b"/metrics",
        b"/inject",
        b"%2F",
        b"%ff",
        b"?state=",
        b'{"owner":{"producer_id":1,"producer_epoch":2}}',
        b"escaping=",
    ),
)
HTTP_TARGET: Final = Target(
    "http",
    check_http,
    _http_seeds,
    Bound(steps=200_000, steps_of_byte=2_000, memory=1_000_000, memory_of_byte=2_000),
    (
        "kproxy.control.asgi_server",
        "kproxy.control.control_api",
        "kproxy.control.guard",
        "kproxy.control.json_schema",
        "kproxy.control.page_guard",
        "kproxy.control.metrics_page",
    ),
    _HEADERS,
)
