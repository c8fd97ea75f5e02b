import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.cli import main
from kproxy.codec.messages import ErrorCode
from kproxy.config import Address, Config, ExitCode
from kproxy.control.listeners import serve_control
from kproxy.txn.described import OwnerId, Stale
from kproxy.txn.txn_error import TxnError
from tests.control.fake_transactions import NOW_MS, FakeTransactions

TOKEN = "correct-horse-battery"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KPROXY_CONTROL_SOCKET", "KPROXY_CONTROL_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


async def with_control(tmp_path: Path, control: FakeTransactions, work: Callable[[], None]) -> None:
    """Runs commands against the real server on a socket that the environment names."""
    config = Config(bootstrap_servers=(Address("kafka", 9092),), control_socket=tmp_path / "c.sock")
    with pytest.MonkeyPatch.context() as patch, trio.fail_after(120), capture_logs():
        patch.setenv("KPROXY_CONTROL_SOCKET", str(tmp_path / "c.sock"))
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_control, config, control)
            await trio.to_thread.run_sync(work)
            nursery.cancel_scope.cancel()


async def test_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeTransactions()

    def work() -> None:
        assert main(["txn", "begin", "--client-id", "loader", "--timeout-ms", "5000"]) == ExitCode.OK
        control.write("kproxy-loader", "orders", 3)
        assert main(["txn", "describe", "kproxy-loader"]) == ExitCode.OK
        assert main(["txn", "prepare", "kproxy-loader", "--owner", "1000:0"]) == ExitCode.OK
        assert main(["txn", "commit", "kproxy-loader", "--batch-id", "7"]) == ExitCode.OK
        assert main(["txn", "begin", "--transactional-id", "other"]) == ExitCode.OK
        assert main(["txn", "abort", "other", "--owner", "1001:0"]) == ExitCode.OK

    await with_control(tmp_path, control, work)
    out, err = capsys.readouterr()
    for words in ("kproxy-loader", "Ongoing", "orders-3", "owner: prepared", "commit (client)", "abort (client)"):
        assert words in out
    assert err == ""
    assert control.calls[0] == ("begin", "loader", None, 5000)
    assert ("commit", "kproxy-loader", "7", (), None, False) in control.calls


@pytest.mark.parametrize(
    ("as_of_ms", "sentence"),
    [
        (
            NOW_MS,
            "This is as of 2023-11-14 22:13:20 UTC, for the transaction log cannot be read now: no broker answers.",
        ),
        (
            None,
            "Only what is open at this kproxy is known, for the transaction log was not read yet: no broker answers.",
        ),
    ],
)
async def test_what_is_old_says_so_beside_the_answer(
    as_of_ms: int | None, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = FakeTransactions(stale=Stale(as_of_ms, "no broker answers"))

    def work() -> None:
        assert main(["txn", "begin", "--client-id", "loader"]) == ExitCode.OK
        capsys.readouterr()
        for command in (["list", "--json"], ["describe", "kproxy-loader", "--json"]):
            assert main(["txn", *command]) == ExitCode.OK
            out, err = capsys.readouterr()
            assert "kproxy-loader" in str(json.loads(out))
            assert err == f"{sentence}\n"

    await with_control(tmp_path, control, work)


async def test_members_are_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeTransactions()

    def work() -> None:
        assert main(["txn", "begin", "--client-id", "a"]) == ExitCode.OK
        assert (
            main(["txn", "commit", "kproxy-a", "--batch-id", "7", "--member", "x", "--member", "y"]) == ExitCode.FAILURE
        )

    await with_control(tmp_path, control, work)
    assert control.calls[-1] == ("commit", "kproxy-a", "7", ("x", "y"), None, False)
    assert "kproxy: INVALID_REQUEST: no members ['x', 'y']." in capsys.readouterr().err


async def test_a_group_of_producers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeTransactions()
    owner = OwnerId(1000, 0)
    member = ["--transactional-id", "t", "--client-id", "c", "--member"]

    def work() -> None:
        assert main(["txn", "initialize", "t", "--timeout-ms", "5000"]) == ExitCode.OK
        assert main(["txn", "begin", *member, "m", "--owner", "1000:0"]) == ExitCode.OK
        assert main(["txn", "begin", *member, "n"]) == ExitCode.OK
        assert main(["txn", "prepare", "t", "--member", "m"]) == ExitCode.OK
        assert main(["txn", "abandon", "t", "--member", "n"]) == ExitCode.OK
        decided = ["--member", "m", "--owner", "1000:0", "--abort-others"]
        assert main(["txn", "commit", "t", "--batch-id", "7", *decided]) == ExitCode.OK
        assert main(["txn", "abort", "t", "--owner", "1000:7"]) == ExitCode.FAILURE

    await with_control(tmp_path, control, work)
    assert control.calls == [
        ("initialize", "t", "", 5000),
        ("begin_member", "t", "m", "c", owner, None, False),
        ("begin_member", "t", "n", "c", None, None, False),
        ("prepare_member", "t", "m", None),
        ("abort_member", "t", "n"),
        ("commit", "t", "7", ("m",), owner, True),
        ("abort", "t", (), OwnerId(1000, 7), False),
    ]
    out, err = capsys.readouterr()
    assert "m: prepared" in out
    assert "PRODUCER_FENCED" in err


async def test_json_is_the_apis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        assert main(["txn", "begin", "--client-id", "a", "--json"]) == ExitCode.OK
        begun = json.loads(capsys.readouterr().out)
        assert (begun["transactional_id"], begun["partitions"], begun["last"]) == ("kproxy-a", [], None)
        assert main(["txn", "list", "--json"]) == ExitCode.OK
        [row] = json.loads(capsys.readouterr().out)
        assert row["state"] == "Ongoing"

    await with_control(tmp_path, FakeTransactions(), work)


async def test_the_list_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        assert main(["txn", "list"]) == ExitCode.OK
        assert capsys.readouterr().out == "no transactional ids\n"
        assert main(["txn", "begin", "--client-id", "[bold]a"]) == ExitCode.OK
        assert main(["txn", "list", "--state", "Ongoing", "--state", "Empty"]) == ExitCode.OK
        out = capsys.readouterr().out
        for words in ("kproxy-[bold]a", "Ongoing", "2023-11-14 22:13:20", "box-1"):
            assert words in out

    await with_control(tmp_path, FakeTransactions(), work)


async def test_what_kproxy_refuses_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeTransactions(failures=[TxnError(ErrorCode.TRANSACTION_ABORTABLE, "the time is over")])

    def work() -> None:
        assert main(["txn", "commit", "t", "--owner", "1:2"]) == ExitCode.FAILURE

    await with_control(tmp_path, control, work)
    assert capsys.readouterr() == (
        "",
        "kproxy: TRANSACTION_ABORTABLE: the time is over. Abort the transaction and begin a new one.\n",
    )


async def test_over_a_url_with_the_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN, encoding="utf-8")
    config = Config(
        bootstrap_servers=(Address("kafka", 9092),), control_http=Address("127.0.0.1", 0), control_token_file=path
    )

    def work(url: str) -> None:
        assert main(["txn", "list", "--url", url]) == ExitCode.FAILURE
        assert main(["txn", "list", "--url", url, "--token-file", str(path)]) == ExitCode.OK

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_control, config, FakeTransactions())
            await trio.to_thread.run_sync(work, f"http://{address}")
            nursery.cancel_scope.cancel()
    assert "Send the token" in capsys.readouterr().err


def test_where_no_kproxy_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.sock"
    assert main(["txn", "list", "--socket", str(path)]) == ExitCode.FAILURE
    assert capsys.readouterr().err == (
        f"kproxy: no answer from kproxy at {path}: there is no such socket; is it running with control.socket set to "
        "this path?\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["begin"], "give --client-id, --transactional-id or both"),
        (["begin", "--client-id", "a", "--timeout-ms", "0"], "--timeout-ms"),
        (["begin", "--member", "m", "--client-id", "a"], "--member needs --client-id and --transactional-id"),
        (["begin", "--client-id", "a", "--owner", "1:2"], "--owner is for a --member"),
        (["commit", "t", "--owner", "7"], "'7' must be a producer id and an epoch, as 4000:7"),
        (["commit"], "ID"),
        (["commit", "t", "--member", "m"], "give --owner, as begin or describe shows it, or --batch-id"),
        (["abort", "t", "--abort-others"], "give --owner, as begin or describe shows it"),
        (["prepare", "t"], "give --owner, as begin or describe shows it, or --member"),
        (["comit", "t"], "valid commands: abandon, abort, begin, commit, describe, find-hanging, initialize, list"),
        (["list", "--url", "ftp://localhost:1"], "--url 'ftp://localhost:1' must be http://HOST:PORT"),
        (["list", "--url", "http://localhost:1", "--token-file", "/none"], "cannot read --token-file /none"),
    ],
)
def test_wrong_command_lines(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txn", *arguments]) == ExitCode.USAGE
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_help_has_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txn", *arguments]) == ExitCode.OK
    assert "kproxy txn begin --client-id loader" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["begin", "commit", "abort", "prepare", "list", "describe"])
def test_every_command_says_where_kproxy_is_found(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txn", command, "--help"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert all(option in out for option in ("--socket", "--url", "--token-file", "--json"))


def test_a_command_loads_nothing_of_the_proxy() -> None:
    code = (
        "import sys; from kproxy.cli import main; main(['txn', 'list', '--socket', '/none']);"
        "heavy = {'trio', 'starlette', 'h11', 'structlog', 'kproxy.app', 'prometheus_client'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


async def test_a_producer_id_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = TxnError(ErrorCode.RESOURCE_NOT_FOUND, "no reader waits for producer id 7")
    control = FakeTransactions()

    def work() -> None:
        assert main(["txn", "reject", "6917529027641081857"]) == ExitCode.OK
        assert capsys.readouterr().out == "what was written under producer id 6917529027641081857 is aborted\n"
        assert main(["txn", "reject", "6917529027641081857", "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out) == {"producer_id": 6917529027641081857}
        control.failures.append(unknown)
        assert main(["txn", "reject", "7"]) == ExitCode.FAILURE
        assert main(["txn", "reject", "0"]) == ExitCode.USAGE

    await with_control(tmp_path, control, work)
    assert control.calls[0] == ("reject", 6917529027641081857)
    assert "no reader waits for producer id 7. Ask the kproxy whose log names it." in capsys.readouterr().err
