"""``kproxy run --dry-run``: what run would do at a cluster."""

import json
import socket
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.config import ExitCode
from kproxy.demo.demo_broker import running_fake
from kproxy.testing.ports import free_ports

Out = pytest.CaptureFixture[str]
QUIET = ("--http", "off", "--max-connections", "10", "--transaction-state-log-replication-factor", "1")


def options(listen: int) -> tuple[str, ...]:
    return (*QUIET, "--listen", f"127.0.0.1:{listen}", "--broker-ports", f"{listen + 1}-{listen + 3}")


def test_it_says_what_run_would_do_and_does_nothing(capsys: Out) -> None:
    listen = free_ports(4)[0]
    with running_fake() as bootstrap:
        given = ("run", "--dry-run", "--bootstrap-servers", bootstrap, *options(listen))
        assert main([*given, "--producer-state-log-replication-factor", "1"]) == ExitCode.OK
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        assert main([*given, "--json"]) == ExitCode.WARNINGS
        found = json.loads(capsys.readouterr().out)
    assert {
        "max.connections 10 flag --max-connections",
        f"broker.ports {listen + 1}-{listen + 3}",
    } <= set(lines)
    assert any(line.startswith("__kproxy_producer_state 16 1 Create, ") for line in lines)
    assert any(line.startswith(f"1 {bootstrap} like Kafka ") and line.endswith(f" {listen + 2}") for line in lines)
    assert not any(line.startswith("log.level") for line in lines), "only what does not have its default"
    assert found["options"]["log.level"] == {"value": "info", "source": "default"}
    assert found["listeners"] == {"listen": f"127.0.0.1:{listen}", "broker.ports": f"{listen + 1}-{listen + 3}"}
    [broker] = found["brokers"]
    assert (broker["address"], broker["error"]) == (bootstrap, None)
    assert broker["port"] in range(listen + 1, listen + 4)
    # The second run found none of the topics: the first has created none.
    names = [row["name"] for row in found["topics"]]
    assert names == ["__kproxy_producer_state", "__kproxy_transaction_state", "__kproxy_fleet"]
    assert found["worst"] == "warn"


def test_an_address_that_is_taken_is_a_failure(capsys: Out) -> None:
    listen = free_ports(4)[0]
    with running_fake() as bootstrap, socket.create_server(("127.0.0.1", listen)):
        given = ("run", "--dry-run", "--bootstrap-servers", bootstrap, *options(listen))
        assert main(given) == ExitCode.UNWELL
    assert f"run cannot listen at listen = '127.0.0.1:{listen}': Address already in use" in capsys.readouterr().out


def test_brokers_that_do_not_answer(capsys: Out) -> None:
    listen = free_ports(4)[0]
    given = ("run", "--dry-run", "--bootstrap-servers", "127.0.0.1:1", *options(listen))
    assert main(given) == ExitCode.UNWELL
    out = capsys.readouterr().out
    assert "Brokers: none answers" in out
    assert "Topics that it would create" not in out, "nobody knows which there are"


def test_a_file_that_run_could_not_use_ends_it(tmp_path: Path, capsys: Out) -> None:
    given = ("run", "--dry-run", "--bootstrap-servers", "127.0.0.1:1", "--acl-file", str(tmp_path / "acl.yaml"))
    assert main(given) == ExitCode.USAGE
    assert "acl.yaml" in capsys.readouterr().err


def test_json_goes_with_dry_run(capsys: Out) -> None:
    assert main(["run", "--json", "--bootstrap-servers", "127.0.0.1:1"]) == ExitCode.USAGE
    assert "--json goes with --dry-run" in capsys.readouterr().err
