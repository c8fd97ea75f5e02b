import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.cli import main
from kproxy.cli.config_commands import print_table, report
from kproxy.config import Address, Config, ExitCode, Loaded, load_with_sources, options
from kproxy.control.config_api import config_routes
from kproxy.control.listeners import serve_control
from kproxy.control.logging import Logs
from tests.control.fake_settings import make_settings
from tests.control.fake_transactions import FakeTransactions

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KPROXY_")]:
        monkeypatch.delenv(name)


async def with_control(tmp_path: Path, given: dict[str, str], work: Callable[[list[str]], None]) -> None:
    """Runs commands against the real server; ``work`` gets the option that names its socket."""
    path = tmp_path / "c.sock"
    settings = make_settings(given)
    routes = config_routes(settings, Logs(settings.config, io.StringIO()))
    config = Config(bootstrap_servers=(Address("kafka", 9092),), control_socket=path)
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_control, config, FakeTransactions(), lambda: routes)
            await trio.to_thread.run_sync(work, ["--socket", str(path)])
            nursery.cancel_scope.cancel()


async def test_the_configuration_in_force(tmp_path: Path, capsys: Out) -> None:
    def work(where: list[str]) -> None:
        assert main(["config", "show", *where]) == ExitCode.OK
        assert main(["config", "show", "--json", *where]) == ExitCode.OK

    await with_control(tmp_path, {"max.connections": "7"}, work)
    table, brace, text = capsys.readouterr().out.partition("{\n")
    row = next(line for line in table.splitlines() if "max.connections " in line)
    assert re.split(" {2,}", row.strip()) == [
        "max.connections", "7", "connections", "flag --max-connections", "reload",
    ]  # fmt: skip
    assert {"name": "log.level", "value": "info", "unit": "", "source": "default", "change": "reload"} in json.loads(
        brace + text
    )["options"]


async def test_only_what_was_changed(tmp_path: Path, capsys: Out) -> None:
    def work(where: list[str]) -> None:
        assert main(["config", "show", "--changed", "--json", *where]) == ExitCode.OK

    await with_control(tmp_path, {"max.connections": "7"}, work)
    names = {row["name"] for row in json.loads(capsys.readouterr().out)["options"]}
    assert "max.connections" in names
    assert "log.level" not in names


async def test_a_reload_says_by_option_what_it_did(tmp_path: Path, capsys: Out) -> None:
    given: dict[str, str] = {}

    def work(where: list[str]) -> None:
        given.update({"max.connections": "7", "fetch.max.bytes": "2048", "retry.window.ms": "5"})
        assert main(["config", "reload", *where]) == ExitCode.OK
        given["max.connections"] = "many"
        assert main(["config", "reload", *where]) == ExitCode.FAILURE
        given["max.connections"] = "8"
        assert main(["config", "reload", "--json", *where]) == ExitCode.OK

    await with_control(tmp_path, given, work)
    out, err = capsys.readouterr()
    assert "applied (reload): max.connections: 10000 -> 7" in out
    assert "applied (new connections): fetch.max.bytes: 16777216 -> 2048" in out
    assert "needs a restart: retry.window.ms: 120000 -> 5" in out
    assert "options are unchanged" in out
    assert "kproxy: INVALID_CONFIG: Nothing has changed. max.connections = 'many'" in err
    assert json.loads(out[out.index("{") :])["applied"][0]["after"] == 8


async def test_levels_of_logs(tmp_path: Path, capsys: Out) -> None:
    def work(where: list[str]) -> None:
        assert main(["log-level", *where]) == ExitCode.OK
        assert main(["log-level", "server", "debug", *where]) == ExitCode.OK
        assert main(["log-level", "all", "error", *where]) == ExitCode.OK
        assert main(["log-level", "server", "default", "--json", *where]) == ExitCode.OK
        assert main(["log-level", "server", *where]) == ExitCode.USAGE
        assert main(["log-level", "sever", "debug", *where]) == ExitCode.USAGE

    await with_control(tmp_path, {}, work)
    out, err = capsys.readouterr()
    assert out[: out.index("{")].split("\n") == [
        "all: info",
        "all: info",
        "server: debug",
        "all: error",
        "server: debug",
        "",
    ]
    assert json.loads(out[out.index("{") :])["overrides"] == []
    assert "give a level, too: debug, info, warning, error, default" in err
    assert "'sever' is not one of" in err


def test_a_file_is_checked(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "kproxy.yaml"
    file.write_text("{bootstrap.servers: 'kafka:9092', max.connections: 7}")
    assert main(["config", "check", "--json", str(file)]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["options"]["max.connections"] == {"value": 7, "source": f"file {file}"}
    file.write_text("{bootstrap.servers: 'kafka:9092', max.conections: 7}")
    assert main(["config", "check", str(file)]) == ExitCode.USAGE
    assert "did you mean 'max.connections'" in capsys.readouterr().err
    assert main(["config", "check", str(file), "--config", str(file)]) == ExitCode.USAGE
    assert "the file is given twice" in capsys.readouterr().err


FILES = {
    "ssl.certificate.location": "x.crt",
    "upstream.ssl.ca.location": "ca.crt",
    "upstream.sasl.password.location": "password",
    "upstream.sasl.identities.file": "identities.yaml",
    "acl.file": "acl.yaml",
    "quotas.file": "quotas.yaml",
    "sasl.credentials.location": "users",
    "control.token.file": "token",
}
NEEDED = {
    "ssl.certificate.location": {"ssl.key.location": "/none.key"},
    "upstream.ssl.ca.location": {"upstream.security.protocol": "ssl"},
    "upstream.sasl.password.location": {"upstream.security.protocol": "sasl_plaintext", "upstream.sasl.username": "u"},
    "upstream.sasl.identities.file": {
        "upstream.security.protocol": "sasl_plaintext",
        "upstream.sasl.mechanism": "SCRAM-SHA-256",
        "upstream.sasl.username": "u",
        "upstream.sasl.password.location": "env:HOME",
        "upstream.sasl.identity": "mapped",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
        "sasl.oauthbearer.expected.audience": "kproxy",
    },
    "acl.file": {},
    "quotas.file": {},
    "sasl.credentials.location": {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
    "control.token.file": {"control.http": "127.0.0.1:19645"},
}


@pytest.mark.parametrize("option", FILES)
def test_a_file_that_an_option_names_is_loaded(option: str, tmp_path: Path, capsys: Out) -> None:
    """The exit code is that of ``kproxy run``, which begins with the same files."""
    path = tmp_path / FILES[option]
    given = {"bootstrap.servers": "127.0.0.1:1", "listen": "127.0.0.1:0", option: str(path)} | NEEDED[option]
    file = tmp_path / "kproxy.yaml"
    file.write_text(json.dumps(given))
    checked = main(["config", "check", str(file)])
    found = capsys.readouterr()
    assert str(path) in found.err
    assert found.out == ""
    assert main(["config", "check", "--json", str(file)]) == checked
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert str(path) in report["problems"][0]
    assert main(["run", "--config", str(file)]) == checked
    assert str(path) in capsys.readouterr().err


def test_all_bad_files_are_named_at_once(tmp_path: Path, capsys: Out) -> None:
    given = [f"--acl-file={tmp_path}/acl.yaml", f"--quotas-file={tmp_path}/quotas.yaml"]
    assert main(["config", "check", "--bootstrap-servers=kafka:9092", *given]) == ExitCode.USAGE
    message = capsys.readouterr().err
    assert f"{tmp_path}/acl.yaml" in message
    assert f"{tmp_path}/quotas.yaml" in message


def test_help(capsys: Out) -> None:
    assert main(["config"]) == ExitCode.OK
    assert "kproxy config reload" in capsys.readouterr().out


def test_nobody_there_is_one_clear_line(tmp_path: Path, capsys: Out) -> None:
    assert main(["config", "show", "--socket", str(tmp_path / "none")]) == ExitCode.FAILURE
    assert capsys.readouterr().err.count("\n") == 1


def loaded(**flags: str) -> Loaded:
    """What ``load_with_sources`` makes of flags, an underscore for each dot."""
    given = {name.replace("_", "."): text for name, text in flags.items()}
    return load_with_sources({"bootstrap.servers": "kafka:9092", **given}, {})


def row_of(name: str, table: str) -> list[str]:
    """The cells of an option's row that are not empty."""
    [line] = [line for line in table.splitlines() if name in line.split()[:1]]
    return re.split(" {2,}", line.strip())


def test_a_table_that_goes_into_a_pipe_has_one_line_for_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(loaded(listen="[::1]:9092"))
    table = capsys.readouterr().out
    assert row_of("listen", table) == ["listen", "[::1]:9092", "flag --listen"]
    assert row_of("max.frame.bytes", table) == ["max.frame.bytes", "104857600", "bytes", "default"]


def test_a_default_that_is_worked_out_is_described_and_off_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(loaded(http="off"))
    table = capsys.readouterr().out
    assert row_of("advertised.broker.ports", table) == ["advertised.broker.ports", "(broker.ports)", "default"]
    assert row_of("http", table)[-1] == "flag --http"
    assert not row_of("http", table)[1].startswith("127.0.0.1")


def test_json_keeps_numbers_and_switches_and_shows_the_rest_as_text() -> None:
    rules = '{"old-*": {lz4: gzip}}'
    found: Any = report(loaded(broker_ports="1000-1099", idempotence_enable="no", deliver_codecs=rules), [])
    shown = {name: entry["value"] for name, entry in json.loads(json.dumps(found))["options"].items()}
    assert list(shown) == list(options(Config))
    assert shown["idempotence.enable"] is False
    assert shown["max.frame.bytes"] == 104857600
    assert shown["broker.ports"] == "1000-1099"
    assert shown["advertised.address"] is None
    assert shown["deliver.codecs"] == rules


def test_json_of_a_configuration_that_is_wrong() -> None:
    assert report(None, ["first", "second"]) == {"ok": False, "problems": ["first", "second"], "options": {}}


@pytest.mark.parametrize("every", [[], ["--all"]])
def test_a_first_file_is_accepted_and_has_the_defaults(tmp_path: Path, capsys: Out, every: list[str]) -> None:
    path = tmp_path / "first.yaml"
    assert main(["config", "init", *every, "-o", str(path)]) == ExitCode.OK
    assert f"kproxy config check {path}" in capsys.readouterr().out
    assert main(["config", "check", str(path)]) == ExitCode.OK
    text = path.read_text(encoding="utf-8")
    brokers = (Address("kafka-1", 9092), Address("kafka-2", 9092))
    as_written = Config(bootstrap_servers=brokers)
    assert load_with_sources({"config": str(path)}, {}).config == as_written
    path.write_text(re.sub(r"^#([a-z.]+: )", r"\1", text, flags=re.MULTILINE), encoding="utf-8")
    assert load_with_sources({"config": str(path)}, {}).config == as_written
    names = set(re.findall(r"^#?([a-z.]+):", text, re.MULTILINE))
    assert names == set(options(Config)) if every else len(names) > 20


def test_a_first_file_explains_each_option(capsys: Out) -> None:
    assert main(["config", "init", "-o", "-"]) == ExitCode.OK
    text = capsys.readouterr().out
    entry = options(Config)["max.connections"]
    about, value, setting = text.partition(f"# {entry.reason[:40]}")[2].split("\n\n")[0].rsplit("\n", 2)
    assert "." in about, "its first sentence"
    assert value == "# Value: integer, 1 to 1000000 (connections). Default: 10000."
    assert setting == "#max.connections: 10000"
    assert max(map(len, text.splitlines())) <= 120


def test_a_file_that_exists_is_written_over_by_force_alone(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kproxy.yaml").write_text("log.level: debug\n")
    assert main(["config", "init"]) == ExitCode.USAGE
    assert (
        "kproxy.yaml exists: choose another name with --output, or write over it with --force"
        in capsys.readouterr().err
    )
    assert Path("kproxy.yaml").read_text() == "log.level: debug\n"
    assert main(["config", "init", "--force"]) == ExitCode.OK
    assert "bootstrap.servers:" in Path("kproxy.yaml").read_text()
    assert main(["config", "init", "-o", "none/kproxy.yaml"]) == ExitCode.USAGE
    assert "cannot write none/kproxy.yaml: No such file or directory" in capsys.readouterr().err
