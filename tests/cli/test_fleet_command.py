"""``kproxy fleet``: tables for people, JSON for programs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.config import Address, ExitCode
from tests.cli.test_status_commands import beside
from tests.control.fake_facts import FLEET, FakeFacts


async def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], facts: FakeFacts, *options: str) -> str:
    def work(page: Address, control: Path) -> None:
        assert main(["fleet", "--socket", str(control), *options]) == ExitCode.OK

    await beside(tmp_path, facts, work)
    return capsys.readouterr().out


async def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (await shown(tmp_path, capsys, FakeFacts())).splitlines()
    assert lines[0].strip() == "2 instances, 1 in trouble, 1 older than 0.2.0"
    assert [line.split("  ")[0] for line in lines[2:4]] == ["box-2", "box-1"]
    assert "no broker has been reached yet" in lines[2]
    assert "0.1.0, old" in lines[3]
    assert "3 s ago" in lines[3]
    assert "2 h" in lines[3]
    text = "\n".join(lines)
    assert "billing    librdkafka  Fetch v3, Produce v2" in text
    assert "24,000" in text
    assert "3 entries of __kproxy_fleet are no announcements, and are ignored" in text


async def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(await shown(tmp_path, capsys, FakeFacts(), "--json"))
    assert [row["instance_id"] for row in found["instances"] if row["old"]] == ["box-1"]
    assert [row["client_id"] for row in found["legacy_clients"]] == ["billing"]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"instances": [], "total": 0}, "no instance announces itself: is fleet.announce.interval.ms 0"),
        ({"announces": False}, "the instance that answers does not announce itself"),
        ({"incomplete": True}, "not all announcements could be read in time"),
        ({"total": 700}, "and 698 more"),
    ],
)
async def test_what_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], remark: str
) -> None:
    facts = FakeFacts(the_fleet=FLEET._replace(**changes))  # type: ignore[arg-type]
    out = await shown(tmp_path, capsys, facts)
    assert remark in out
    assert "no 0 instances" not in out


async def test_a_fleet_that_cannot_be_read_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = replace(FakeFacts(), the_fleet=OSError("no answer within 10 s"))

    def work(page: Address, control: Path) -> None:
        assert main(["fleet", "--socket", str(control)]) == ExitCode.FAILURE

    await beside(tmp_path, facts, work)
    assert "The fleet is not known: no answer within 10 s" in capsys.readouterr().err


async def test_what_another_instance_says_of_itself_does_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = FLEET.instances[0]._replace(instance_id="\x1b[31mred", problems=["\x07[bold]x[/bold]"])
    out = await shown(tmp_path, capsys, FakeFacts(the_fleet=FLEET._replace(instances=[hostile])))
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\\x1b[31mred" in out
    assert "[bold]x[/bold]" in out
