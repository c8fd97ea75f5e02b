"""Access to the control API: no requests by browsers, and none without the token."""

from collections.abc import Callable, Iterable
from hmac import compare_digest
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from kproxy.codec.messages import ErrorCode
from kproxy.config import Address
from kproxy.control.problems import Problem, answer

#: Sent by browsers only. A page of another site must not decide transactions, whatever its name resolves to.
_BROWSER_HEADERS: Final = (b"origin", b"sec-fetch-site")
_HTTP_PORT: Final = 80

Headers = Iterable[tuple[bytes, bytes]]


class Rules(NamedTuple):
    """What a listener requires of a request."""

    #: Values of Host that name this listener; None: not required, because no DNS name leads to a Unix socket.
    hosts: frozenset[bytes] | None
    #: None: not required, because the mode of the Unix socket's file limits who may connect.
    token: bytes | None


class Refusal(NamedTuple):
    """Why a request is refused: the label of the counter, and the response."""

    reason: str
    problem: Problem


def host_names(address: Address) -> frozenset[bytes]:
    """The values of Host that are accepted at this address; never a name that foreign DNS could give out."""
    names = {str(Address(host, address.port)).lower() for host in ("localhost", "127.0.0.1", "::1", address.host)}
    if address.port == _HTTP_PORT:
        names |= {name.removesuffix(f":{_HTTP_PORT}") for name in names}
    return frozenset(name.encode() for name in names)


def refusal(headers: Headers, rules: Rules) -> Refusal | None:
    """Why a request is refused; None if it is served."""
    by_name = values_by_name(headers)
    if any(name in by_name for name in _BROWSER_HEADERS):
        return forbidden("origin", "The control API is not for browsers: send neither Origin nor Sec-Fetch-Site.")
    hosts = [value.lower() for value in by_name.get(b"host", [])]
    if rules.hosts is not None and (len(hosts) != 1 or hosts[0] not in rules.hosts):
        return forbidden("host", "Host must be this listener's address, such as localhost and the port.")
    return None if rules.token is None else without_token(by_name, rules.token)


def values_by_name(headers: Headers) -> dict[bytes, list[bytes]]:
    """The values of each header, by its name in small letters."""
    by_name: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        by_name.setdefault(name.lower(), []).append(value)
    return by_name


def without_token(by_name: dict[bytes, list[bytes]], token: bytes) -> Refusal | None:
    """The refusal of a request that does not carry the token; None if it does."""
    if _bears(by_name.get(b"authorization", []), token):
        return None
    detail = "Send the token of control.token.file: Authorization: Bearer TOKEN."
    return Refusal("token", Problem(HTTPStatus.UNAUTHORIZED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail))


def forbidden(reason: str, detail: str) -> Refusal:
    """A refusal whatever the token."""
    return Refusal(reason, Problem(HTTPStatus.FORBIDDEN, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, detail))


def _bears(values: list[bytes], token: bytes) -> bool:
    if len(values) != 1:
        return False
    scheme, _, given = values[0].partition(b" ")
    # Always compared, and in a time that does not show how many of its bytes were right.
    right = compare_digest(given.strip(), token)
    return scheme.lower() == b"bearer" and right


def by_rules(rules: Rules) -> Callable[[Scope], Refusal | None]:
    """The check of the ``Guard`` of the control API."""
    return lambda scope: refusal(scope["headers"], rules)


class Guard:
    """ASGI middleware: a refused request is counted and does not reach the application."""

    def __init__(
        self, app: ASGIApp, refuses: Callable[[Scope], Refusal | None], refused: Callable[[str], None]
    ) -> None:
        """``refuses`` returns why a request is refused; ``refused`` is called with the reason of each."""
        self._app = app
        self._refuses = refuses
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; a websocket is closed before it is one."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            found = self._refuses(scope)
            if found is not None:
                self._refused(found.reason)
                headers = {"www-authenticate": "Bearer"} if found.reason == "token" else None
                await answer(found.problem, headers)(scope, receive, send)
                return
            # Routes see the path as it was sent: a %2F in a transactional id does not end it.
            await self._app({**scope, "path": scope["raw_path"].decode("latin-1")}, receive, send)
