import pytest
from starlette.types import Message, Receive, Scope, Send

from kproxy.config import Address
from kproxy.control.guard import Guard, Rules, by_rules, host_names, refusal
from tests.control.asgi import call

TOKEN = b"correct-horse-battery"
RULES = Rules(host_names(Address("127.0.0.1", 19645)), TOKEN)
HOST = (b"host", b"127.0.0.1:19645")
BEARER = (b"authorization", b"Bearer " + TOKEN)


def refuse_nothing(reason: str) -> None:
    raise AssertionError(reason)


async def reached(scope: Scope, receive: Receive, send: Send) -> None:
    """The guarded application: returns the path that it sees."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


@pytest.mark.parametrize(
    "headers",
    [
        [HOST, BEARER],
        [(b"host", b"localhost:19645"), BEARER],
        [(b"host", b"LocalHost:19645"), BEARER],
        [(b"host", b"[::1]:19645"), (b"Authorization", b"bearer  " + TOKEN)],
    ],
)
def test_who_has_the_token_and_names_the_listener_is_served(headers: list[tuple[bytes, bytes]]) -> None:
    assert refusal(headers, RULES) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([HOST], 401),
        ([HOST, (b"authorization", b"")], 401),
        ([HOST, (b"authorization", TOKEN)], 401),
        ([HOST, (b"authorization", b"Basic " + TOKEN)], 401),
        ([HOST, (b"authorization", b"Bearer")], 401),
        ([HOST, (b"authorization", b"Bearer " + TOKEN[:-1])], 401),
        ([HOST, (b"authorization", b"Bearer " + TOKEN + b"x")], 401),
        ([HOST, (b"authorization", b"Bearer " + TOKEN.upper())], 401),
        ([HOST, (b"authorization", b"Bearer \xff")], 401),
        ([HOST, BEARER, BEARER], 401),
        ([BEARER], 403),
        ([BEARER, HOST, HOST], 403),
        ([BEARER, (b"host", b"")], 403),
        ([BEARER, (b"host", b"127.0.0.1")], 403),
        ([BEARER, (b"host", b"127.0.0.1:80")], 403),
        ([BEARER, (b"host", b"evil.example:19645")], 403),
        ([BEARER, (b"host", b"localhost.evil.example:19645")], 403),
        ([BEARER, HOST, (b"origin", b"http://127.0.0.1:19645")], 403),
        ([BEARER, HOST, (b"Origin", b"null")], 403),
        ([BEARER, HOST, (b"sec-fetch-site", b"cross-site")], 403),
    ],
)
def test_nobody_else_is(headers: list[tuple[bytes, bytes]], status: int) -> None:
    found = refusal(headers, RULES)
    assert found is not None
    assert found.problem.status == status
    assert found.reason == _reason(headers, status)


def _reason(headers: list[tuple[bytes, bytes]], status: int) -> str:
    if status == 401:
        return "token"
    return "origin" if {name.lower() for name, _ in headers} & {b"origin", b"sec-fetch-site"} else "host"


def test_the_unix_socket_asks_for_no_token_and_yet_serves_no_browser() -> None:
    rules = Rules(hosts=None, token=None)
    assert refusal([], rules) is None
    assert refusal([(b"host", b"anything")], rules) is None
    assert refusal([(b"origin", b"null")], rules) is not None


def test_on_the_port_of_http_the_port_may_be_left_out() -> None:
    names = host_names(Address("127.0.0.1", 80))
    assert {b"localhost", b"localhost:80", b"[::1]", b"127.0.0.1"} <= names
    assert b"localhost" not in host_names(Address("127.0.0.1", 81))


async def test_what_is_refused_does_not_reach_the_application() -> None:
    refused: list[str] = []
    answer = await call(
        Guard(reached, by_rules(RULES), refused.append), "POST", "/v1/transactions", [("host", "127.0.0.1:19645")]
    )
    assert (answer.status, answer.error) == (401, "CLUSTER_AUTHORIZATION_FAILED")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.body


async def test_the_application_sees_the_path_as_it_was_sent() -> None:
    answer = await call(Guard(reached, by_rules(Rules(None, None)), refuse_nothing), "GET", "/v1/a%2Fb%20c")
    assert answer.body == b"/v1/a%2Fb%20c"


async def test_a_websocket_is_closed() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    await Guard(reached, by_rules(Rules(None, None)), refuse_nothing)(
        {"type": "websocket", "headers": []}, receive, send
    )
    assert [message["type"] for message in sent] == ["websocket.close"]
