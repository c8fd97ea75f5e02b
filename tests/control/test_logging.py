import io
import json
import logging
from typing import Any

import structlog

from kproxy.control.logging import RepeatLimit, configure_logging


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
