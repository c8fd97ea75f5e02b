"""Notifies systemd, for a service of Type=notify (sd_notify(3)); does nothing if systemd did not start kproxy."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_VARIABLE: Final = "NOTIFY_SOCKET"


class Notifier:
    """Sends states as datagrams to the socket that the environment names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """An address that begins with @ is an abstract one."""
        address = environ.get(_VARIABLE, "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        """Clients are served, by this process: it may have taken over from the one that was started."""
        self._send(f"READY=1\nMAINPID={os.getpid()}")

    def reloading(self) -> None:
        """The configuration is read again; ``ready`` follows."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # the service does not depend on who watches it
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.sendto(state.encode(), self._address)
