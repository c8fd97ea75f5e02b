import json
import re
from typing import Any

import pytest

from kproxy.cli.config_report import print_table, report
from kproxy.config import Loaded, load_with_sources, options
from kproxy.config.model import Config


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
