import os
import socket
from pathlib import Path

import pytest

from kproxy.control.systemd import Notifier


@pytest.mark.parametrize("abstract", [False, True])
def test_states(tmp_path: Path, abstract: bool) -> None:
    name = f"@kproxy-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        systemd.settimeout(60)
        notifier = Notifier({"NOTIFY_SOCKET": name})
        notifier.ready()
        assert systemd.recv(1000).decode().splitlines() == ["READY=1", f"MAINPID={os.getpid()}"]
        notifier.reloading()
        state, when = systemd.recv(1000).decode().splitlines()
        assert (state, when.partition("=")[0]) == ("RELOADING=1", "MONOTONIC_USEC")
        assert when.partition("=")[2].isdigit()
        notifier.stopping()
        assert systemd.recv(1000) == b"STOPPING=1"


def test_nobody_who_watches_is_no_fault(tmp_path: Path) -> None:
    Notifier({}).ready()
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")}).ready()
