"""Tools that are missing or fail are named, with what they printed."""

import sys
from pathlib import Path

import pytest

from kproxy.testing.tools import Unavailable, find_tool, run_tool


def test_a_missing_tool_says_what_to_install() -> None:
    with pytest.raises(Unavailable, match="no kproxy-no-such found: install it"):
        find_tool("kproxy-no-such", "it")


def test_a_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"failed:\nout of luck"):
        run_tool([sys.executable, "-c", "import sys; sys.exit('out of luck')"], tmp_path)


def test_a_tool_runs_in_its_directory_with_its_environment(tmp_path: Path) -> None:
    run_tool([sys.executable, "-c", "import os; open(os.environ['NAME'], 'w').close()"], tmp_path, {"NAME": "made"})
    assert (tmp_path / "made").exists()
