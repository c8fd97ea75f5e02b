"""The agents' configurations, and what is read back: no agent runs here."""

import subprocess
from pathlib import Path

import pytest

from verification.agents import java
from verification.agents.agent import Agent, FollowsFile, line, number_in
from verification.agents.debian import Kcat
from verification.agents.go_programs import Telegraf
from verification.agents.mirrors import Mirror
from verification.agents.packages import Unpacked
from verification.agents.programs import AGENTS

#: Where the packages and builds have what the configurations name.
_FILES = (
    "usr/sbin/rsyslogd",
    "usr/lib/x86_64-linux-gnu/rsyslog/omkafka.so",
    "usr/sbin/syslog-ng",
    "usr/lib/syslog-ng/3.38/libkafka.so",
    "usr/sbin/collectd",
    "usr/lib/collectd/write_kafka.so",
    "usr/share/collectd/types.db",
    "usr/bin/kcat",
    "telegraf",
    "otelcol",
)


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    root = tmp_path / "root"
    for name in _FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return Unpacked(root, "3.38.1-5+deb12u1")


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_the_program_is_the_unpacked_one_and_its_configuration_says_where_kafka_is(
    agent: type[Agent], unpacked: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "find_java", lambda _: "java")
    home = tmp_path / "home"
    home.mkdir()
    made = agent(home, "kafka.example:9092")
    command = made.command(unpacked)
    if isinstance(made, Mirror):
        made.source.stop()  # it has not run, but holds ports
    assert command[0] == "java" or command[0].startswith(str(unpacked.root))
    assert any(str(unpacked.root) in word for word in command)
    told = [*command, *(path.read_text() for path in home.rglob("*") if path.is_file())]
    assert any("kafka.example:9092" in text for text in told)
    if isinstance(made, FollowsFile):
        assert made.input.exists()
        assert any(str(made.input) in text for text in told)


def test_lines_reach_a_program_by_its_file_or_its_input(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        kcat = Kcat(tmp_path, "")
        kcat.write(["line-1", "line-2"], process)
        kcat.finish(process)
        assert process.stdout is not None
        assert process.stdout.read() == b"line-1\nline-2\n"
        telegraf = Telegraf(tmp_path, "")
        for one in ("line-1", "line-2"):
            telegraf.write([one], process)
        assert telegraf.input.read_text() == "line-1\nline-2\n"


def test_libraries_are_searched_where_they_were_unpacked(unpacked: Unpacked) -> None:
    places = unpacked.environment["LD_LIBRARY_PATH"].split(":")
    assert places == [str(unpacked.root / name) for name in ("usr/lib/x86_64-linux-gnu", "usr/lib/syslog-ng")]


@pytest.mark.parametrize(
    "value",
    [
        b"line-7",
        b" line-7",
        b"PUTVAL host/line-7/gauge interval=10.000 1795953073.520:1\n",
        b'tail,path=/x value="line-7" 1',
        b'{"before":null,"after":{"id":8,"line":"line-7"},"source":{"version":"3.6.0.Final"}}',
    ],
)
def test_a_line_is_known_in_whatever_an_agent_makes_of_it(value: bytes) -> None:
    assert number_in(value) == 7
    assert number_in(line(1_234).encode()) == 1_234


def test_a_record_that_holds_no_line_is_an_error() -> None:
    with pytest.raises(ValueError, match="a record holds no line: b'else'"):
        number_in(b"else")
