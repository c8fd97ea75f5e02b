import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import structlog

import kproxy
from kproxy.config import Address, Config
from kproxy.config.log_levels import SUBSYSTEMS
from kproxy.config.values import LogLevelRule
from kproxy.control.logging import Logs, RepeatLimit, configure_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_has_fixed_keys_first() -> None:
    stream = io.StringIO()
    configure_logging("info", "auto", stream)
    structlog.get_logger(subsystem="net").info("listening", address="127.0.0.1:1")
    [line] = lines(stream)
    assert list(line) == ["timestamp", "level", "subsystem", "event", "address"]
    assert (line["level"], line["subsystem"], line["event"]) == ("info", "net", "listening")
    assert line["timestamp"].endswith("Z")


def test_console_on_a_terminal() -> None:
    stream = Terminal()
    configure_logging("info", "auto", stream)
    structlog.get_logger(subsystem="net").warning("broker lost", broker=1)
    assert "broker lost" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_formats_can_be_forced() -> None:
    stream, terminal = io.StringIO(), Terminal()
    configure_logging("info", "console", stream)
    structlog.get_logger().info("plain")
    assert "\x1b[" not in stream.getvalue()
    assert not stream.getvalue().startswith("{")
    configure_logging("info", "json", terminal)
    structlog.get_logger().info("machine")
    assert json.loads(terminal.getvalue())["subsystem"] == "kproxy"


def test_level() -> None:
    stream = io.StringIO()
    configure_logging("warning", "json", stream)
    log = structlog.get_logger()
    log.debug("no")
    log.info("no")
    log.warning("yes")
    log.error("yes too")
    assert [line["event"] for line in lines(stream)] == ["yes", "yes too"]


def test_what_json_cannot_say_is_text() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    structlog.get_logger().info("odd", value=b"\xff", where=("a", 1))
    assert lines(stream)[0]["value"] == repr(b"\xff")


def test_exception_stays_on_one_line_of_json() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    try:
        raise ValueError("boom")
    except ValueError:
        structlog.get_logger().exception("failed")
    [line] = lines(stream)
    assert line["exception"].endswith("ValueError: boom")


def test_logging_of_libraries_goes_the_same_way_from_warnings_up() -> None:
    stream = io.StringIO()
    configure_logging("debug", "json", stream)
    library = logging.getLogger("some.library")
    library.info("chatter")
    library.warning("careful: %s", "edge")
    [line] = lines(stream)
    assert (line["subsystem"], line["level"], line["event"]) == ("some.library", "warning", "careful: edge")


def test_repeated_warnings_are_held_back_and_counted() -> None:
    now = 0.0
    limit = RepeatLimit(burst=2, period=10.0, clock=lambda: now)

    def passes(event: str, method: str = "warning") -> dict[str, Any] | None:
        try:
            return dict(limit(None, method, {"event": event, "subsystem": "net"}))
        except structlog.DropEvent:
            return None

    assert [passes("refused") is not None for _ in range(5)] == [True, True, False, False, False]
    assert passes("another") == {"event": "another", "subsystem": "net"}
    assert passes("refused", "info") is not None
    now = 10.0
    assert passes("refused") == {"event": "refused", "subsystem": "net", "suppressed": 3}
    assert passes("refused") == {"event": "refused", "subsystem": "net"}
    assert passes("refused") is None


def test_events_that_never_repeat_do_not_fill_the_memory() -> None:
    limit = RepeatLimit(burst=1, clock=lambda: 0.0, most_events=3)
    for number in range(10):
        assert limit(None, "error", {"event": str(number)}) == {"event": str(number)}
    assert limit(None, "error", {"event": "0"}) == {"event": "0"}


def test_a_logger_says_its_subsystem() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    structlog.get_logger("kproxy.server").info("listening")
    structlog.get_logger().info("plain")
    assert [line["subsystem"] for line in lines(stream)] == ["server", "kproxy"]


def test_a_subsystem_may_tell_more_or_less_than_the_others() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream, [LogLevelRule("server", "debug"), LogLevelRule("tls", "error")])
    for subsystem in ("server", "tls", "app"):
        log = structlog.get_logger(f"kproxy.{subsystem}")
        log.debug("d")
        log.info("i")
        log.error("e")
    told = [(line["subsystem"], line["event"]) for line in lines(stream)]
    assert told == [("server", "d"), ("server", "i"), ("server", "e"), ("tls", "e"), ("app", "i"), ("app", "e")]


def test_levels_change_for_loggers_that_exist() -> None:
    stream, log = io.StringIO(), structlog.get_logger("kproxy.server")
    logs = Logs(make_config(), stream)
    log.debug("1")
    logs.set("debug", "server")
    log.debug("2")
    logs.set(None, "server")
    log.debug("3")
    logs.set("debug")
    log.debug("4")
    logs.set(None)
    log.debug("5")
    assert [line["event"] for line in lines(stream)] == ["2", "4"]


def test_what_was_set_by_hand_stays_until_the_options_change() -> None:
    logs = Logs(make_config(), io.StringIO())
    logs.set("debug", "server")
    logs.reconfigure(make_config())
    assert (logs.level, logs.overrides) == ("info", {"server": "debug"})
    logs.reconfigure(make_config(log_level="warning", log_level_overrides=(LogLevelRule("tls", "debug"),)))
    assert (logs.level, logs.overrides) == ("warning", {"tls": "debug"})


def test_every_subsystem_of_the_code_is_one_that_may_be_named() -> None:
    named = set()
    logger = re.compile(r'^_?\w*log = structlog\.get_logger\("kproxy\.(\w+)"\)', re.MULTILINE)
    for path in Path(kproxy.__file__).parent.rglob("*.py"):
        named |= set(logger.findall(path.read_text()))
    assert named == set(SUBSYSTEMS)


def make_config(**changes: Any) -> Config:
    return Config(bootstrap_servers=(Address("kafka", 9092),), log_format="json", **changes)
