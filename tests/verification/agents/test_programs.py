"""The agents' configurations, and what is read back: no agent runs here."""

from pathlib import Path

import pytest

from verification.agents.packages import Unpacked
from verification.agents.programs import AGENTS, Agent, line, number_in

#: Where Debian's packages have what the configurations name.
_FILES = (
    "usr/sbin/rsyslogd",
    "usr/lib/x86_64-linux-gnu/rsyslog/omkafka.so",
    "usr/sbin/syslog-ng",
    "usr/lib/syslog-ng/3.38/libkafka.so",
    "usr/sbin/collectd",
    "usr/lib/collectd/write_kafka.so",
    "usr/share/collectd/types.db",
    "usr/bin/kcat",
)


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    root = tmp_path / "root"
    for name in _FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return Unpacked(root, "3.38.1-5+deb12u1")


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_the_program_is_the_packages_own_and_told_where_kafka_is(
    agent: type[Agent], unpacked: Unpacked, tmp_path: Path
) -> None:
    made = agent(tmp_path, "kafka.example:9092")
    command = made.command(unpacked)
    assert command[0].startswith(str(unpacked.root))
    told = [*command, *(path.read_text() for path in tmp_path.glob("*.conf"))]
    assert any("kafka.example:9092" in text for text in told)


def test_libraries_are_searched_where_they_were_unpacked(unpacked: Unpacked) -> None:
    places = unpacked.environment["LD_LIBRARY_PATH"].split(":")
    assert places == [str(unpacked.root / name) for name in ("usr/lib/x86_64-linux-gnu", "usr/lib/syslog-ng")]


@pytest.mark.parametrize(
    "value", [b"line-7", b" line-7", b"PUTVAL host/line-7/gauge interval=10.000 1795953073.520:1\n"]
)
def test_a_line_is_known_in_whatever_an_agent_makes_of_it(value: bytes) -> None:
    assert number_in(value) == 7
    assert number_in(line(1_234).encode()) == 1_234


def test_a_record_that_holds_no_line_is_an_error() -> None:
    with pytest.raises(ValueError, match="a record holds no line: b'else'"):
        number_in(b"else")
