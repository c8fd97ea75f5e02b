from typing import Any

import pytest

from kproxy.control import fact_schemas
from kproxy.control.control_api import make_api
from kproxy.control.fact_routes import fact_routes
from kproxy.control.json_schema import faults
from tests.control.asgi import call
from tests.control.fake_facts import FakeFacts
from tests.control.fake_transactions import FakeTransactions

SCHEMAS: list[tuple[str, Any]] = [
    ("status", fact_schemas.STATUS),
    ("clients", fact_schemas.CLIENTS),
    ("lanes", fact_schemas.LANES),
    ("brokers", fact_schemas.BROKERS),
    ("fleet", fact_schemas.FLEET),
]


@pytest.mark.parametrize(("name", "schema"), SCHEMAS, ids=[name for name, _ in SCHEMAS])
async def test_answers_are_as_the_document_says(name: str, schema: Any) -> None:
    answer = await call(make_api(FakeTransactions(), fact_routes(FakeFacts())), "GET", f"/v1/{name}")
    assert answer.status == 200
    assert list(faults(answer.json, schema)) == []


async def test_a_fleet_that_cannot_be_read_is_a_problem_with_its_reason() -> None:
    facts = FakeFacts(the_fleet=OSError("no answer within 10 s"))
    answer = await call(make_api(FakeTransactions(), fact_routes(facts)), "GET", "/v1/fleet")
    assert answer.status == 503
    assert answer.json["detail"] == "The fleet is not known: no answer within 10 s."


async def test_names_become_objects() -> None:
    answer = await call(make_api(FakeTransactions(), fact_routes(FakeFacts())), "GET", "/v1/clients")
    [row] = answer.json["clients"]
    assert row["per_second"] == {"bytes_in": 2_500_000.0, "bytes_out": 8_000.5, "requests": 240.0}
    assert row["versions"] == {"Produce": 2, "Metadata": 1}
    assert row["last_error"]["reason"] == "Produce: NOT_ENOUGH_REPLICAS"


async def test_of_long_lists_the_total_is_reported() -> None:
    facts = FakeFacts(left_out=5)
    found = (await call(make_api(FakeTransactions(), fact_routes(facts)), "GET", "/v1/clients")).json
    assert (found["total"], len(found["clients"])) == (6, 1)


async def test_clients_by_client_id() -> None:
    app = make_api(FakeTransactions(), fact_routes(FakeFacts()))
    name = (await call(app, "GET", "/v1/clients")).json["clients"][0]["client_id"]
    assert (await call(app, "GET", f"/v1/clients?client_id={name}")).json["total"] == 1
    assert (await call(app, "GET", "/v1/clients?client_id=another")).json == {"total": 0, "clients": []}


async def test_a_status_can_only_be_looked_at() -> None:
    assert (await call(make_api(FakeTransactions(), fact_routes(FakeFacts())), "POST", "/v1/status")).status == 405
