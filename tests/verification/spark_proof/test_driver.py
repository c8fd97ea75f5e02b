"""Processes of an application are found by their family, and only they are ended."""

import os
import subprocess
import sys

from verification.spark_proof.driver import descendants

_NESTED = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=0)
print(child.pid, flush=True)
child.wait()
"""


def test_descendants_of_any_depth() -> None:
    with subprocess.Popen([sys.executable, "-c", _NESTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        grandchild = int(child.stdout.readline())
        assert descendants(child.pid) == [grandchild]
        assert {child.pid, grandchild} <= set(descendants(os.getpid()))
        child.stdin.close()
        child.wait(30)
