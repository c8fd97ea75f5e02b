from datetime import UTC, datetime
from pathlib import Path

import pytest

from kproxy.config import ExitCode, StartupError
from kproxy.spark.audit.request import (
    Request,
    Since,
    choose_topics,
    duration_ms,
    duration_text,
    parse_since,
    read_command_config,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
TOPICS = ["orders", "orders-2015", "bills", "__kproxy_transaction_state", "__consumer_offsets"]


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("30s", 30_000), (" 10 m", 600_000), ("7d", 604_800_000)])
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["500ms", "30s", "10m", "2h", "7d", "0s"])
def test_a_duration_is_shown_as_it_is_written(text: str) -> None:
    assert duration_text(duration_ms(text)) == text


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1.5h", "1 week"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration; valid: 500ms, 30s"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("2h", Since(time_ms=NOW_MS - 7_200_000)),
        ("2026-11-21T06:00:00", Since(time_ms=NOW_MS - 6 * 3_600_000)),
        ("2026-11-21T07:00:00+01:00", Since(time_ms=NOW_MS - 6 * 3_600_000)),
        ('{"orders": {"0": 15, "3": 0}}', Since(offsets={"orders": {0: 15, 3: 0}})),
    ],
)
def test_beginnings(text: str, since: Since) -> None:
    assert parse_since(text, NOW) == since


@pytest.mark.parametrize("text", ["yesterday", "{", '{"orders": 3}', '{"orders": {"0": "3"}}', '{"orders": {"0": -1}}'])
def test_what_is_no_beginning(text: str) -> None:
    with pytest.raises(ValueError, match="valid: "):
        parse_since(text, NOW)


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("bills, orders,bills", ["bills", "orders"]),
        ("orders.*", ["orders", "orders-2015"]),
        (".*|", ["bills", "orders", "orders-2015"]),
        ("__consumer_offsets", ["__consumer_offsets"]),
    ],
)
def test_topics(words: str, chosen: list[str]) -> None:
    assert choose_topics(words, TOPICS) == chosen


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("order", "no such topic: order; there are bills, orders, orders-2015"),
        ("x+", "no topic matches 'x+'; there are bills"),
        ("(", "'(' is no regular expression"),
        ("", "no topic matches ''"),
    ],
)
def test_topics_that_are_none(words: str, told: str) -> None:
    with pytest.raises(StartupError) as raised:
        choose_topics(words, TOPICS)
    assert told in str(raised.value)
    assert raised.value.exit_code == ExitCode.USAGE


def test_security_of_a_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the audit\nsecurity.protocol = SASL_SSL\nsasl.mechanism=PLAIN\nclient.id=audit\n\n"
        'sasl.jaas.config=org.x.PlainLoginModule required \\\n  username="a" password="b=c";\n'
    )
    request = Request("k:9093", "b:9092", "orders", tmp_path, security=read_command_config(file))
    assert request.where() == {
        "kafka.bootstrap.servers": "k:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'org.x.PlainLoginModule required   username="a" password="b=c";',
    }
    assert request.where_log()["kafka.bootstrap.servers"] == "b:9092"
    assert not any("b=c" in str(value) for value in request.options().values())
    with pytest.raises(StartupError, match=r"--command-config .*No such file"):
        read_command_config(tmp_path / "none")
