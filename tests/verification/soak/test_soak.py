"""A short run, which is enough to see each kind of client served."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from verification.soak.__main__ import main
from verification.soak.clients import KINDS

pytestmark = pytest.mark.long


def test_a_short_run_is_judged_and_written(tmp_path: Path) -> None:
    samples, picture = tmp_path / "soak.json", tmp_path / "soak.png"
    options = ["--minutes", "0.25", "--every", "1", "--warm-up", "0", "--per-second", "20"]
    result = CliRunner().invoke(main, [*options, "--json", str(samples), "--plot", str(picture)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    found = json.loads(samples.read_text())
    assert not found["faults"]
    assert set(found["served"]) == {part.__name__ for part, _ in KINDS}
    assert {"resident memory, MB", "open files"} <= {bar["name"] for bar in found["bars"]}
    assert picture.stat().st_size


def test_a_run_of_no_length_says_that_it_is_too_short() -> None:
    result = CliRunner().invoke(main, ["--minutes", "0.01", "--every", "1"])
    assert result.exit_code == 2
    assert "samples after the warm-up" in result.output
