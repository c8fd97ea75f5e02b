from typing import Any

import pytest

from kproxy.config import Address, Config
from kproxy.control.page_guard import abort_ability, page_refusal, page_rules

TOKEN = b"correct-horse-battery"
HERE = "127.0.0.1:19644"
OWN = {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}
BEARER = {"authorization": f"Bearer {TOKEN.decode()}"}
ABORT = "/v1/transactions/t/abort"
RULES = page_rules(
    Config(
        bootstrap_servers=(Address("kafka", 9092),),
        http=Address("kproxy.example", 19644),
        advertised_address=Address("gateway.example", 9092),
    ),
    TOKEN,
)


def scope(method: str, path: str, peer: str = "127.0.0.1", **headers: str) -> dict[str, Any]:
    given = {"host": HERE} | {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode()) for name, value in given.items() if value]
    return {"method": method, "path": path, "headers": raw, "client": (peer, 40000)}


def reason(asked: dict[str, Any]) -> str | None:
    found = page_refusal(asked, RULES)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:19644",
        "localhost:8080",
        "[::1]:19644",
        "[::1]",
        "10.1.2.3",
        "10.1.2.3:80",
        "KPROXY.example:19644",
        "gateway.example",
    ],
)
def test_who_names_it_rightly_may_look(host: str) -> None:
    assert reason(scope("GET", "/", host=host)) is None
    assert reason(scope("GET", "/v1/status", host=host, **BEARER)) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:19644",
        "127.0.0.1.evil.example",
        "localhost.",
        ":19644",
        "[::1",
        "a:b",
        "127.0.0.1:" + "1" * 5000,
    ],
)
def test_another_name_is_somebody_elses_dns(host: str) -> None:
    assert reason(scope("GET", "/", host=host)) == "host"
    assert reason(scope("GET", "/v1/status", host=host)) == "host"
    assert reason(scope("POST", ABORT, host=host, **OWN, **BEARER)) == "host"


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_machines_may_name_it_as_they_like(path: str) -> None:
    assert reason(scope("GET", path, host="kproxy.monitoring.svc")) is None


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:19645"},
        {"origin": "https://127.0.0.1:19644"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_pages_of_others_get_nothing(method: str, headers: dict[str, str]) -> None:
    path = "/v1/status" if method == "GET" else ABORT
    assert reason(scope(method, path, **headers, **BEARER)) == "origin"


def test_a_link_from_elsewhere_may_open_the_page() -> None:
    assert reason(scope("GET", "/", sec_fetch_site="cross-site")) is None


def test_who_has_the_token_aborts() -> None:
    assert reason(scope("POST", ABORT, **BEARER)) is None
    assert reason(scope("POST", ABORT, **{name.replace("-", "_"): v for name, v in OWN.items()}, **BEARER)) is None


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer wrong-horse-battery", f"Basic {TOKEN.decode()}"])
def test_nobody_else_does(token: str) -> None:
    assert reason(scope("POST", ABORT, authorization=token)) == "token"


def test_the_token_is_not_asked_for_where_it_could_be_heard() -> None:
    assert reason(scope("POST", ABORT, peer="10.1.2.3", **BEARER)) == "remote"
    assert reason(scope("POST", ABORT, host="10.1.2.3:19644", **BEARER)) == "remote"


OPEN = page_rules(Config(bootstrap_servers=(Address("kafka", 9092),), http=Address("0.0.0.0", 19644)), TOKEN)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (scope("GET", "/v1/clients", peer="10.1.2.3"), "token"),
        (scope("GET", "/v1/clients", peer="10.1.2.3", authorization="Bearer wrong-horse-battery"), "token"),
        (scope("GET", "/v1/clients", peer="10.1.2.3", **BEARER), None),
        (scope("GET", "/v1/clients", host="10.1.2.3:19644"), "token"),
        (scope("GET", "/v1/clients"), None),
        (scope("GET", "/", peer="10.1.2.3"), None),
        (scope("GET", "/metrics", peer="10.1.2.3"), None),
        (scope("GET", "/readyz", peer="10.1.2.3"), None),
    ],
)
def test_other_hosts_see_who_the_clients_are_only_with_the_token(asked: dict[str, Any], reason: str | None) -> None:
    found = page_refusal(asked, OPEN)
    assert (None if found is None else found.reason) == reason


def test_without_a_token_other_hosts_see_nothing() -> None:
    found = page_refusal(scope("GET", "/v1/status", peer="10.1.2.3", **BEARER), OPEN._replace(token=None))
    assert found is not None
    assert found.reason == "remote"
    assert "control.token.file" in str(found.problem)


def test_without_a_token_nothing_is_aborted() -> None:
    found = page_refusal(scope("POST", ABORT, **BEARER), RULES._replace(token=None))
    assert found is not None
    assert found.reason == "off"


def test_the_page_knows_whether_it_may_have_buttons() -> None:
    assert abort_ability(scope("GET", "/"), RULES) == "token"
    assert abort_ability(scope("GET", "/"), RULES._replace(token=None)) == "off"
    assert abort_ability(scope("GET", "/", peer="10.1.2.3"), RULES) == "remote"
    assert abort_ability(scope("GET", "/", host="10.1.2.3"), RULES) == "remote"
