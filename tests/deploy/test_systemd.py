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
    assert service["RestartPreventExitStatus"] == str(int(ExitCode.USAGE))
    assert service["ExecReload"].startswith("/bin/kill -HUP")
