import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from kproxy.config import Address
from kproxy.control.control_api import make_api
from kproxy.control.fact_routes import fact_routes
from kproxy.control.guard import Guard, Rules, by_rules, host_names
from kproxy.control.openapi import document
from tests.control.asgi import call
from tests.control.fake_facts import FakeFacts
from tests.control.fake_settings import settings_routes
from tests.control.fake_transactions import FakeTransactions

ROOT = Path(__file__).parent.parent.parent
TOKEN = "correct-horse-battery"
LISTENER = Address("127.0.0.1", 19645)
GOOD = {"host": str(LISTENER), "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")


def filled_in(path: str) -> str:
    return path.replace("{transactional_id}", "t").replace("{member}", "m").replace("{producer_id}", "7")


PATHS = [filled_in(path) for path in document()["paths"]] + ["/", "/v2/x", "/metrics"]
WRONG: list[dict[str, str | None]] = [
    {"authorization": None},
    {"authorization": "Bearer"},
    {"authorization": f"Bearer {TOKEN}x"},
    {"authorization": f"Basic {TOKEN}"},
    {"host": None},
    {"host": "evil.example:19645"},
    {"host": "127.0.0.1:1"},
    {"origin": "http://evil.example"},
    {"origin": str(LISTENER)},
    {"sec-fetch-site": "same-origin"},
]


def more_routes() -> list[Route]:
    return [*settings_routes(), *fact_routes(FakeFacts())]


def guarded(control: FakeTransactions) -> Guard:
    rules = Rules(host_names(LISTENER), TOKEN.encode())
    return Guard(make_api(control, more_routes()), by_rules(rules), [].append)


def operations() -> Iterator[tuple[str, str]]:
    for path, item in document()["paths"].items():
        yield from ((path, verb) for verb in item if verb in ("get", "post", "put"))


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from references(inner)


def test_the_file_agrees_with_the_code() -> None:
    command = [sys.executable, "-m", "tools.generate_openapi", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    routes = {
        (route.path, method.lower())
        for route in make_api(FakeTransactions(), more_routes()).routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert routes == set(operations())


def test_every_reference_leads_somewhere() -> None:
    root: Any = json.loads(json.dumps(document()))
    for reference in references(root):
        node = root
        for key in reference.removeprefix("#/").split("/"):
            node = node[key]


def test_operations_have_names_of_their_own() -> None:
    names = [document()["paths"][path][verb]["operationId"] for path, verb in operations()]
    assert len(names) == len(set(names)) == 21


@pytest.mark.parametrize("path", [path for path, _ in operations()])
def test_parameters_of_paths_are_declared(path: str) -> None:
    item = document()["paths"][path]
    assert bool(re.search(r"{\w+}", path)) == ("parameters" in item)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_no_route_and_no_verb_is_served_without_credentials(wrong: dict[str, str | None]) -> None:
    control = FakeTransactions()
    app = guarded(control)
    headers = [(name, value) for name, value in {**GOOD, **wrong}.items() if value is not None]
    for verb, path in product(VERBS, PATHS):
        answer = await call(app, verb, path, headers, b'{"client_id": "a"}')
        assert answer.status in (401, 403), (verb, path)
    assert control.calls == []


async def test_with_credentials_every_route_is_served() -> None:
    app = guarded(FakeTransactions())
    for path, verb in operations():
        body = b'{"level": "info"}' if verb == "put" else b"{}"
        answer = await call(app, verb.upper(), filled_in(path), GOOD.items(), body)
        assert answer.status not in (401, 403, 405, 415, 500), path


def test_the_documentation_lists_every_route() -> None:
    pages = [
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("transactions.md", "operations.md", "status.md")
    ]
    found = re.findall(r"^\| `(GET|POST|PUT) (/v1/\S+)` \|", "\n".join(pages), re.MULTILINE)
    listed = {(path, verb.lower()) for verb, path in found}
    assert listed == set(operations())
