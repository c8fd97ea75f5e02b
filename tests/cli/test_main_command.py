import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kproxy import __version__
from kproxy.cli import main
from kproxy.codec import accelerator
from kproxy.config import Config, ExitCode, Loaded, StartupError, options

Runner = Callable[..., int]

SERVERS = "--bootstrap-servers=kafka:9092"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KPROXY_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Instead of the proxy: what it would have been started with."""
    configs: list[Config] = []

    def run(loaded: Loaded, read: Callable[[], Loaded], *, replace: bool) -> int:
        assert read() == loaded
        configs.append(loaded.config)
        return 0

    replace_run(monkeypatch, run)
    return configs


def replace_run(monkeypatch: pytest.MonkeyPatch, run: Runner) -> None:
    module = ModuleType("kproxy.app")
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kproxy.app", module)


def fail_with(error: BaseException) -> Runner:
    def run(loaded: Loaded, read: Callable[[], Loaded], *, replace: bool) -> int:
        raise error

    return run


def test_run_passes_the_configuration_on(started: list[Config], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROXY_LOG_LEVEL", "debug")
    monkeypatch.setenv("KPROXY_LISTEN", "127.0.0.1:1")
    assert main(["run", SERVERS, "--listen", "127.0.0.1:2", "--http", ""]) == ExitCode.OK
    [config] = started
    assert config.bootstrap_servers == (("kafka", 9092),)
    assert config.listen == ("127.0.0.1", 2)
    assert config.http is None
    assert config.log_level == "debug"


def test_run_returns_what_the_proxy_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_run(monkeypatch, lambda loaded, read, replace: 1)
    assert main(["run", SERVERS]) == ExitCode.FAILURE


def test_startup_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    replace_run(monkeypatch, fail_with(StartupError("cannot listen on x: in use", ExitCode.CANNOT_BIND)))
    assert main(["run", SERVERS]) == ExitCode.CANNOT_BIND
    assert capsys.readouterr() == ("", "kproxy: cannot listen on x: in use\n")


def test_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_run(monkeypatch, fail_with(KeyboardInterrupt()))
    assert main(["run", SERVERS]) == 130


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_run(monkeypatch, fail_with(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["run", SERVERS])


def test_bad_configuration_names_every_problem(started: list[Config], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--listen", "nowhere", "--log-level", "loud"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "kproxy: listen = 'nowhere' (flag --listen): must be HOST:PORT\n" in err
    assert "must be one of debug, info, warning, error" in err
    assert "kproxy: bootstrap.servers is required" in err
    assert not started


def test_unknown_flag_names_the_nearest_and_where_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--bootstrap-server", "a:1"]) == ExitCode.USAGE
    first, second = capsys.readouterr().err.splitlines()
    assert "'--bootstrap-server'" in first
    assert "'--bootstrap-servers'" in first
    assert second == "kproxy: see: kproxy run --help"


def test_flag_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", SERVERS, "--listen"]) == ExitCode.USAGE
    assert "--listen" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "meant"), [("statsu", "status"), ("sandbx", "sandbox"), ("txns", "txn")])
def test_unknown_command_names_the_nearest(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed]) == ExitCode.USAGE
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


def test_unknown_command_names_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnu"]) == ExitCode.USAGE
    words = capsys.readouterr().err.rpartition("valid commands: ")[2].strip().split(", ")
    assert {"config", "demo", "pipeline", "run", "txn"} <= set(words)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"kproxy {__version__}\n"
    assert main(["--version", "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["accelerator"]) == (__version__, accelerator.STATE)


def test_json_alone_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == ExitCode.USAGE
    assert "--json goes with --version" in capsys.readouterr().err


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.OK
    assert "config" in capsys.readouterr().out


def test_check_config_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text("listen: 127.0.0.1:5\n", encoding="utf-8")
    assert main(["config", "check", SERVERS, "--config", str(path)]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    for entry in options(Config):
        assert entry in out
    assert "flag --bootstrap-servers" in out
    assert "127.0.0.1:5" in out


def test_check_config_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--json", SERVERS, "--http", "off"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["problems"] == []
    assert list(report["options"]) == list(options(Config))
    assert report["options"]["bootstrap.servers"] == {"value": "kafka:9092", "source": "flag --bootstrap-servers"}
    assert report["options"]["http"] == {"value": None, "source": "flag --http"}
    assert report["options"]["max.frame.bytes"] == {"value": 104857600, "source": "default"}


def test_check_config_json_with_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--json"]) == ExitCode.USAGE
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert "bootstrap.servers is required" in report["problems"][0]
    assert report["options"] == {}


def test_check_config_with_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == ExitCode.USAGE
    assert "bootstrap.servers is required" in capsys.readouterr().err


def test_demo_passes_its_options_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--help"]) == ExitCode.OK
    assert "--records" in capsys.readouterr().out
    assert main(["demo", "--records", "none"]) == ExitCode.USAGE
    assert "--records" in capsys.readouterr().err


def test_help_loads_nothing_of_the_proxy() -> None:
    code = (
        "import sys; from kproxy.cli import main; main(['run', '--help']);"
        "heavy = {'trio', 'rich', 'starlette', 'h11', 'structlog', 'kproxy.app', 'prometheus_client'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_module_is_the_command() -> None:
    command = [sys.executable, "-m", "kproxy", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, f"kproxy {__version__}\n")
