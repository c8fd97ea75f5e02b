"""The unit: systemd's own verification, and that it fits kproxy's defaults."""

import configparser
import subprocess
from pathlib import Path

from kproxy.config import Config, ExitCode, options

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "kproxy.service"


def test_systemd_finds_no_fault() -> None:
    # The manual page is kproxy's own, which need not be installed where this runs.
    command = ["systemd-analyze", "verify", "--man=no", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_service_is_closed() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_it_fits_what_kproxy_does() -> None:
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    grace = options(Config)["shutdown.grace.ms"]
    assert int(service["TimeoutStopSec"].removesuffix("s")) * 1000 > int(grace.default_text)
    assert service["RestartPreventExitStatus"] == f"{int(ExitCode.USAGE)} {int(ExitCode.INSTANCE_TAKEN)}"
    # The last of the two; the first is the check.
    assert service["ExecReload"].startswith("/bin/kill -HUP")


def test_a_wrong_configuration_neither_starts_again_and_again_nor_is_reloaded() -> None:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    # RestartPreventExitStatus holds for ExecStart alone: a check in ExecStartPre would be restarted for ever.
    assert not [line for line in lines if line.startswith(("ExecStartPre", "ExecCondition"))]
    reloads = [line for line in lines if line.startswith("ExecReload")]
    assert reloads == ["ExecReload=/usr/bin/env kproxy config check", "ExecReload=/bin/kill -HUP $MAINPID"]
