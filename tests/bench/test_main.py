"""The command as a whole, with a handful of requests: it must run and report, whatever the figures are."""

import json
import subprocess
import sys
from pathlib import Path

from bench import cases

CASES = ("v2-produce", "v2-fetch", "old-produce", "old-fetch", "latency")


def test_all_three_ways_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "--megabytes", "4", "--json", str(out)]
    for name in CASES:
        command += ["--only", name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = {figure["case"]: figure for figure in json.loads(out.read_text())}
    assert len(figures) == 12
    for case, figure in figures.items():
        assert case.split(":")[0] in ended.stdout
        if "CPU" not in case:  # 10 ms steps of a clock say nothing of so short a run
            assert min(figure["direct"], figure["relay"], figure["kproxy"]) > 0


def test_memory_is_read_from_the_running_proxy() -> None:
    idle, busy = cases.memory(connections=3)
    assert 0 < idle.kproxy <= busy.kproxy * 1.5
    assert busy.case == "memory, 3 connections"
