import json
import resource

import pytest

from kproxy.cli import main
from kproxy.config import ExitCode
from kproxy.demo.demo_broker import running_fake
from kproxy.testing.kafka import RealKafka

ALL = ("--http", "off", "--max-connections", "10", "--transaction-state-log-replication-factor", "1")
WELL = (*ALL, "--crash-recovery-enable", "false")


def findings(out: str) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for row in json.loads(out)["findings"]:
        told.setdefault(row["check"], []).append(row["level"])
    return told


def test_exit_codes_say_how_bad_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with running_fake() as bootstrap:
        assert main(["doctor", "--bootstrap-servers", bootstrap, *WELL]) == ExitCode.OK
        assert main(["doctor", "--bootstrap-servers", bootstrap, *ALL]) == ExitCode.WARNINGS
    assert main(["doctor", "--bootstrap-servers", "127.0.0.1:1", *WELL]) == ExitCode.UNWELL
    out, err = capsys.readouterr()
    for words in ("bootstrap servers", "__kproxy_producer_state is not made yet", "127.0.0.1:1:", "1 fail"):
        assert words in out
    assert err == ""


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bootstrap-servers", "127.0.0.1:1", "--json", *WELL]) == ExitCode.UNWELL
    out = capsys.readouterr().out
    assert json.loads(out)["worst"] == "fail"
    assert findings(out)["advertised addresses"] == ["skipped"]


def test_a_wrong_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bootstrap-servers", "kafka"]) == ExitCode.USAGE
    assert "bootstrap.servers = 'kafka'" in capsys.readouterr().err


@pytest.mark.kafka
def test_on_a_real_kafka(kafka: RealKafka, capsys: pytest.CaptureFixture[str]) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 1_020
    main(["doctor", "--bootstrap-servers", kafka.bootstrap, "--json", *WELL])
    told = findings(capsys.readouterr().out)
    for check in (
        "bootstrap servers",
        "advertised addresses",
        "releases",
        "transaction.version",
        "clock",
        "right to markers",
        "right to producer ids",
        "time-outs",
        "producer id expiration",
        "transaction time-outs",
        "other sizes",
        "open files",
    ):
        assert told[check] == ["ok"], check
