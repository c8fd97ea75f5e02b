"""One short trial with a real agent, a real Kafka and a relay that loses responses; what each kind of trial stops."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kproxy.testing.cluster_client import ClusterClient
from verification.agents.agent import Agent
from verification.agents.debian import Collectd, Rsyslog, SyslogNg
from verification.agents.go_programs import Telegraf
from verification.agents.trial import Place, Trial, run, write_all


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.parametrize(
    ("agent", "kind"),
    [
        (Rsyslog, "killed"),
        (Telegraf, "killed"),
        (SyslogNg, "broker"),
        (SyslogNg, "hand-over"),
        (Collectd, "restarted"),
    ],
)
def test_each_line_is_written_once_through_kproxy_though_acknowledgements_are_lost(
    tmp_path: Path, agent: type[Agent], kind: str
) -> None:
    """Only ``make agents`` shows that direct writes leave copies: how many is a matter of chance."""
    found = run(Trial(agent, kind, 2_000, 0.3), tmp_path)
    assert (found.missing, found.copies) == (0, 0)


class _Steps:
    """A kproxy and a Kafka that record what is done to them."""

    bootstrap = ""

    def __init__(self) -> None:
        self.done: list[str] = []

    def kill(self) -> None:
        self.done.append("kill")

    def stop(self, _: float) -> None:
        self.done.append("stop")

    async def start(self) -> None:
        self.done.append("start")

    async def hand_over(self) -> None:
        self.done.append("hand over")

    def terminate(self, _: int) -> None:
        self.done.append("terminate broker")

    def restart(self, _: int) -> None:
        self.done.append("start broker")


@contextmanager
def _sleeping() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "3600"]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("through", []),
        ("killed", ["kill", "start"]),
        ("restarted", ["stop", "start"]),
        ("hand-over", ["hand over"]),
        ("broker", ["terminate broker", "start broker"]),
    ],
)
@pytest.mark.parametrize("lines", [203, 800])
def test_it_happens_three_times_while_all_lines_are_written(
    kind: str, steps: Sequence[str], lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("__init__", "wait_served", "close"):
        monkeypatch.setattr(ClusterClient, name, lambda *_: None)
    stopped: Any = _Steps()
    agent = Telegraf(tmp_path, "")
    with _sleeping() as process:
        write_all(Trial(Telegraf, kind, lines, 0.0), agent, process, Place("", stopped, [], stopped))
    assert stopped.done == [*steps] * 3
    assert agent.input.read_text().split() == [f"line-{number}" for number in range(lines)]


def test_a_failure_while_lines_are_written_ends_the_program(tmp_path: Path) -> None:
    stopped: Any = _Steps()
    stopped.kill = None
    with _sleeping() as process:
        with pytest.raises(TypeError):
            write_all(
                Trial(Telegraf, "killed", 2_000, 0.0), Telegraf(tmp_path, ""), process, Place("", stopped, [], stopped)
            )
        assert process.wait() != 0
