"""Network namespaces without names: the kernel removes each with its last process, whatever happens to this program."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self, TypeVar

from kproxy.testing.kafka import die_with_parent

__all__ = ["Namespace", "isolate", "why_not"]

_CLONE_NEWNET: Final = 0x40000000
_OWN: Final = Path("/proc/thread-self/ns/net")
_TUN: Final = Path("/dev/net/tun")
_IP_S: Final = 20.0
_Result = TypeVar("_Result")
_libc: Final = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Return in a few words why this machine cannot run the cases; nothing if it can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the program ip is missing (on Debian: iproute2)"
    if not _TUN.exists():
        return f"{_TUN} is missing"
    try:
        Namespace().close()
    except OSError as error:
        return f"the kernel allows no network namespace: {error.strerror}"
    return ""


def isolate() -> None:
    """Move the thread that calls, and all that it starts from now on, into a new namespace with a loopback device.

    :raises OSError: the kernel refuses it.
    """
    _check(_libc.unshare(_CLONE_NEWNET))
    _ip("link", "set", "lo", "up", enter=None)


class Namespace:
    """A network namespace that lives until it is closed and its last process has ended.

    :param file: a descriptor of one that exists; a new one if not given.
    :raises OSError: the kernel refuses it.
    """

    def __init__(self, file: int | None = None) -> None:
        self._file = _in_thread(_make) if file is None else file
        if file is None:
            self.ip("link", "set", "lo", "up")

    @classmethod
    def of_this_thread(cls) -> Self:
        """Return the namespace in which the thread is that calls."""
        return cls(_open())

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Call a function in a thread that is in this namespace, and return what it returns."""

        def inside() -> _Result:
            self._enter()
            return function()

        return _in_thread(inside)

    def before_start(self) -> Callable[[], None]:
        """Return what a child process does before it becomes a program: it enters, and dies with this process."""
        die = die_with_parent()

        def prepare() -> None:
            if die is not None:
                die()
            self._enter()

        return prepare

    def ip(self, *arguments: str) -> None:
        """Run the program ``ip`` in this namespace.

        :raises OSError: it fails; the message has what it wrote.
        """
        _ip(*arguments, enter=self._enter)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enter(self) -> None:
        _check(_libc.setns(self._file, _CLONE_NEWNET))


def _make() -> int:
    _check(_libc.unshare(_CLONE_NEWNET))
    return _open()


def _open() -> int:
    return os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)


def _check(status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _ip(*arguments: str, enter: Callable[[], None] | None) -> None:
    done = subprocess.run(
        ["ip", *arguments], preexec_fn=enter, timeout=_IP_S, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _in_thread(function: Callable[[], _Result]) -> _Result:
    """Call a function in a thread of its own, whose namespace ends with it."""
    results: list[_Result] = []
    errors: list[OSError] = []

    def run() -> None:
        try:
            results.append(function())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="network namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
