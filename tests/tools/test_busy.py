"""Pytest beside a busy neighbour: the loops run meanwhile and end with it, and its exit status is passed on."""

import os
from pathlib import Path

import pytest

from tools.busy import main, neighbours


def test_the_neighbours_run_until_the_block_ends() -> None:
    with neighbours(2) as pids:
        for pid in pids:
            os.kill(pid, 0)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(("body", "status"), [("", 0), ("assert False", 1)])
def test_the_status_is_that_of_pytest(tmp_path: Path, body: str, status: int) -> None:
    (tmp_path / "test_one.py").write_text(f"def test_one():\n    {body or 'pass'}\n")
    quiet = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull]
    assert main(["--neighbours", "1", *quiet, str(tmp_path)]) == status
