"""Completion: the scripts, and what a shell gets when it asks."""

import os
import subprocess
import sys

import pytest

from kproxy.cli import main
from kproxy.config import ExitCode


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == ExitCode.OK
    script = capsys.readouterr().out
    assert "_KPROXY_COMPLETE" in script
    assert f"{shell}_complete" in script


def test_bash_reads_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out + "\ncomplete -p kproxy"
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True, timeout=30)
    assert "kproxy" in done.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("kproxy tx", "plain,txn"),
        ("kproxy txn comm", "plain,commit"),
        ("kproxy run --shutdown-gr", "plain,--shutdown-grace-ms"),
    ],
)
def test_words_are_completed(words: str, found: str) -> None:
    asked = {"_KPROXY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "kproxy"], env=os.environ | asked, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == [found]


def test_an_unknown_shell_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == ExitCode.USAGE
    assert "'bash', 'fish', 'zsh'" in capsys.readouterr().err
