import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.cli import main
from kproxy.config import Address, Config, ExitCode
from kproxy.control.fact_routes import fact_routes
from kproxy.control.listeners import serve_control, serve_http
from kproxy.proxy.facts import Trouble
from kproxy.proxy.stats import Stats
from tests.control.fake_facts import FakeFacts
from tests.control.fake_transactions import FakeTransactions


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KPROXY_CONTROL_SOCKET", "KPROXY_CONTROL_TOKEN_FILE", "KPROXY_HTTP"):
        monkeypatch.delenv(name, raising=False)


def main_ok(arguments: list[str]) -> None:
    assert main(arguments) == ExitCode.OK


async def beside(tmp_path: Path, facts: FakeFacts, work: Callable[[Address, Path], None]) -> None:
    """Runs commands while a control socket and a status page are served."""
    here = Address("127.0.0.1", 0)
    config = Config(bootstrap_servers=(Address("kafka", 9092),), control_socket=tmp_path / "c.sock", http=here)
    with trio.fail_after(120), capture_logs():
        async with trio.open_nursery() as nursery:
            stats = Stats()
            await nursery.start(serve_control, config, FakeTransactions(), lambda: fact_routes(facts))
            page = await nursery.start(serve_http, config, stats, facts, FakeTransactions())
            await trio.to_thread.run_sync(work, page, tmp_path / "c.sock")
            nursery.cancel_scope.cancel()


async def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(page: Address, control: Path) -> None:
        for command in ("status", "clients", "lanes"):
            assert main([command, "--socket", str(control)]) == ExitCode.OK

    await beside(tmp_path, FakeFacts(), work)
    out, err = capsys.readouterr()
    for words in (
        "instance box-1",
        "240/s, in 2.5 MB/s, out 8 kB/s",
        "2 h",
        "9 batches",
        "1 open, the oldest for 30 s, 2 prepared",
        "kafka-1:9092",
        "librdkafka 2.8.0",
        "Produce v2, Metadata v1",
        "NOT_ENOUGH_REPLICAS, 2023-11-14 22:14:55",
        "4611686018427389904",
        "given up",
        "Produce v2, Fetch v3",
        "1 client, listed below",
        "broker 2 is down since 2023-11-14 22:13:30 UTC: cannot connect to kafka-2:9092: Connection refused; "
        "tried again every 2 s",
    ):
        assert words in out
    assert err == ""


async def test_status_says_first_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = FakeFacts()
    outage = Trouble("no broker answers", 1_700_000_010_000, "connection refused; tried again", severe=True)
    refused = Trouble("connections were refused", None, "", severe=False)
    facts.the_status = facts.the_status._replace(troubles=[outage, refused])
    await beside(tmp_path, facts, lambda _, control: main_ok(["status", "--socket", str(control)]))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = lines.index("wrong now no broker answers since 2023-11-14 22:13:30 UTC: connection refused; tried again")
    assert lines[at + 1] == "wrong now connections were refused"


async def test_a_narrow_terminal_shows_fewer_columns_unless_asked_for_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = {}

    def work(page: Address, control: Path) -> None:
        for options in ((), ("--wide",)):
            assert main(["clients", "--socket", str(control), *options]) == ExitCode.OK
            shown[options] = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)

    await beside(tmp_path, FakeFacts(), work)
    assert max(map(len, shown[()].splitlines())) <= 80
    assert "--wide also prints: host, principal, connections" in shown[()]
    assert "User:ANONYMOUS" not in shown[()]
    assert "User:ANONYMOUS" in shown["--wide",]
    assert any("billing" in line and "240/s, in 2.5 MB/s" in line for line in shown["--wide",].splitlines())


async def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(page: Address, control: Path) -> None:
        for command in ("status", "clients", "lanes"):
            assert main([command, "--json", "--socket", str(control)]) == ExitCode.OK

    await beside(tmp_path, FakeFacts(), work)
    decoder, text = json.JSONDecoder(), capsys.readouterr().out
    status, end = decoder.raw_decode(text)
    clients, _ = decoder.raw_decode(text[end:].lstrip())
    assert (status["instance_id"], len(status["brokers"])) == ("box-1", 2)
    assert clients["clients"][0]["per_second"]["requests"] == 240.0


async def test_without_a_control_socket_the_page_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(page: Address, control: Path) -> None:
        assert main(["clients", "--url", f"http://{page}"]) == ExitCode.OK
        monkeypatch.setenv("KPROXY_HTTP", f"0.0.0.0:{page.port}")
        assert main(["clients"]) == ExitCode.OK

    await beside(tmp_path, FakeFacts(the_clients=[]), work)
    assert capsys.readouterr().out == "no clients\nno clients\n"


async def test_of_a_long_list_the_rest_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = FakeFacts(left_out=5)

    def work(page: Address, control: Path) -> None:
        assert main(["clients", "--socket", str(control)]) == ExitCode.OK

    await beside(tmp_path, facts, work)
    assert capsys.readouterr().out.endswith("and 5 more\n")


@pytest.mark.parametrize("command", ["status", "clients", "lanes"])
def test_nobody_answers(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROXY_HTTP", "127.0.0.1:1")
    assert main([command]) == ExitCode.FAILURE
    assert capsys.readouterr().err == (
        "kproxy: no kproxy answers, neither at /run/kproxy/control.sock nor at http://127.0.0.1:1: is it running? "
        "Say where with --url http://HOST:PORT of its http, or --socket PATH of its control.socket\n"
    )


def test_a_socket_that_is_named_is_the_only_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--socket", str(tmp_path / "none")]) == ExitCode.FAILURE
    assert "there is no such socket" in capsys.readouterr().err
