import io
import json
from typing import Any

import pytest
import structlog

from kproxy.control.config_api import config_routes
from kproxy.control.config_schemas import CONFIG, LOGGING, RELOADED
from kproxy.control.control_api import make_api
from kproxy.control.json_schema import faults
from kproxy.control.logging import Logs
from tests.control.asgi import JSON, Answer, call, post
from tests.control.fake_settings import make_settings
from tests.control.fake_transactions import FakeTransactions


class Running:
    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.log = io.StringIO()
        settings = make_settings(self.given)
        logs = Logs(settings.config, self.log)
        settings.follow(logs.reconfigure)
        self.app = make_api(FakeTransactions(), config_routes(settings, logs))

    async def put(self, body: Any) -> Answer:
        return await call(self.app, "PUT", "/v1/logging", [JSON], json.dumps(body).encode())


async def test_the_configuration_in_force() -> None:
    answer = await call(Running().app, "GET", "/v1/config")
    assert answer.status == 200
    assert list(faults(answer.json, CONFIG)) == []


async def test_a_reload_says_what_came_of_it() -> None:
    running = Running()
    running.given |= {"max.connections": "7", "log.level": "debug", "listen": "127.0.0.1:5"}
    answer = await post(running.app, "/v1/config/reload")
    assert answer.status == 200
    assert list(faults(answer.json, RELOADED)) == []
    assert [row["name"] for row in answer.json["applied"]] == ["max.connections", "log.level"]
    assert [row["name"] for row in answer.json["restart_needed"]] == ["listen"]
    structlog.get_logger("kproxy.app").debug("now it is told")
    assert "now it is told" in running.log.getvalue()


async def test_a_reload_of_what_cannot_be_used_changes_nothing() -> None:
    running = Running()
    running.given |= {"max.connections": "many"}
    answer = await post(running.app, "/v1/config/reload")
    assert (answer.status, answer.error) == (400, "INVALID_CONFIG")
    assert "Nothing has changed. max.connections = 'many'" in answer.json["detail"]
    shown = (await call(running.app, "GET", "/v1/config")).json["options"]
    assert {row["name"]: row["value"] for row in shown}["max.connections"] == 10_000


async def test_levels_are_set_and_taken_back() -> None:
    running = Running()
    assert (await running.put({"level": "warning"})).json["level"] == "warning"
    answer = await running.put({"level": "debug", "subsystem": "server"})
    assert list(faults(answer.json, LOGGING)) == []
    assert answer.json["overrides"] == [{"subsystem": "server", "level": "debug"}]
    assert (await call(running.app, "GET", "/v1/logging")).json == answer.json
    await running.put({"level": "default", "subsystem": "server"})
    told = (await running.put({"level": "default"})).json
    assert (told["level"], told["overrides"]) == ("info", [])


@pytest.mark.parametrize("body", [{}, {"level": "loud"}, {"level": "info", "subsystem": "sever"}, {"levels": "info"}])
async def test_a_level_that_cannot_be_is_refused(body: Any) -> None:
    answer = await Running().put(body)
    assert (answer.status, answer.error) == (400, "INVALID_REQUEST")
