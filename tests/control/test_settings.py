import pytest
from structlog.testing import capture_logs

from kproxy.config import Config, ConfigError
from kproxy.control.settings import config_json, reload_json
from tests.control.fake_settings import make_settings


async def test_a_reload_is_told_to_all_who_follow_and_to_the_log() -> None:
    given: dict[str, str] = {}
    settings = make_settings(given)
    heard: list[Config] = []
    settings.follow(heard.append)
    given |= {"max.connections": "7", "listen": "127.0.0.1:5"}
    with capture_logs() as lines:
        reload = await settings.reload()
    assert [config.max_connections for config in heard] == [7]
    assert settings.config is heard[0]
    assert settings.config.listen.port == 19092
    [line] = lines
    assert line["applied"] == {"max.connections": "10000 -> 7"}
    assert line["restart_needed"] == {"listen": "127.0.0.1:19092 -> 127.0.0.1:5"}
    assert line["unchanged"] == len(reload.unchanged)
    assert reload_json(reload)["applied"] == [
        {"name": "max.connections", "before": 10_000, "after": 7, "change": "reload"}
    ]


async def test_a_fault_changes_nothing_and_says_why() -> None:
    given: dict[str, str] = {}
    settings = make_settings(given)
    settings.follow(lambda config: pytest.fail("told of a fault"))
    before = settings.loaded
    given |= {"max.connections": "many", "log.level": "debug"}
    with capture_logs() as lines, pytest.raises(ConfigError, match=r"max\.connections = 'many'"):
        await settings.reload()
    assert settings.loaded is before
    assert [(line["log_level"], len(line["problems"])) for line in lines] == [("error", 1)]


def test_each_option_is_shown_with_its_source() -> None:
    rows = {row["name"]: row for row in config_json(make_settings({"max.connections": "7"}).loaded)["options"]}
    assert rows["max.connections"] == {
        "name": "max.connections",
        "value": 7,
        "unit": "connections",
        "source": "flag --max-connections",
        "change": "reload",
    }
    assert (rows["idempotence.enable"]["value"], rows["control.socket"]["value"]) == (True, "off")
    assert rows["bootstrap.servers"]["value"] == "kafka:9092"
