import json
from pathlib import Path

from click.testing import CliRunner

from tests.verification.history.sample import log, written
from verification.history import write_history
from verification.history.__main__ import main


def test_a_clean_file_is_reported_with_its_counts_and_ends_well(tmp_path: Path) -> None:
    path = tmp_path / "clean"
    write_history(path, [*written("abc"), log(*"abc")])
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 0
    assert "3 acknowledged" in result.output


def test_an_anomaly_is_shown_with_an_example_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    write_history(path, [*written("abc"), log(*"abca")])
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 1
    assert "duplicate t-0: 'a' was sent once (ok) and is at 0, 3" in result.output


def test_json_has_every_anomaly(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    write_history(path, [*written("abc"), log(*"abcab")])
    result = CliRunner().invoke(main, ["--json", str(path)])
    found = json.loads(result.output)
    assert result.exit_code == 1
    assert found["acknowledged"] == 3
    assert [(one["kind"], one["value"], one["offsets"]) for one in found["anomalies"]] == [
        ("duplicate", "a", [0, 3]),
        ("duplicate", "b", [1, 4]),
    ]


def test_what_is_no_history_is_a_wrong_command_line(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("not json\n")
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 2
    assert "other:1" in result.output
