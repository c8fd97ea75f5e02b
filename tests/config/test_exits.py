import errno
from pathlib import Path

import pytest

from kproxy.config import EXIT_CODES, ExitCode, StartupError, cannot_listen
from kproxy.errors import KproxyError


def test_the_numbers_of_the_exit_codes_stay() -> None:
    names = ("OK", "FAILURE", "USAGE", "CANNOT_BIND", "PROMISE_BROKEN", "WARNINGS", "UNWELL", "INSTANCE_TAKEN")
    numbers = {name: number for number, name in enumerate(names)}
    assert {code.name: int(code) for code in ExitCode} == numbers | {"INTERRUPTED": 130}


def test_each_exit_code_has_a_meaning() -> None:
    assert list(EXIT_CODES) == list(ExitCode)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EADDRINUSE, "another process uses it: choose another for --control-http, or stop that process"),
        (errno.EADDRNOTAVAIL, "it is not an address of this host: for all of them --control-http :PORT"),
        (errno.EACCES, "ports below 1024 need"),
    ],
)
def test_an_address_that_cannot_be_listened_on_comes_with_advice(number: int, advice: str) -> None:
    error = cannot_listen("control.http", "127.0.0.1:80", OSError(number, "no"))
    assert str(error).startswith("cannot listen on control.http = '127.0.0.1:80': no; ")
    assert advice in str(error)
    assert error.exit_code == ExitCode.CANNOT_BIND


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (
            errno.EACCES,
            "kproxy's user may not create it: let that user write to /run/kproxy, or choose another path",
        ),
        (errno.ENOENT, "there is no directory /run/kproxy: create it, or choose another path for --control-socket"),
        (errno.ENOTDIR, "/run/kproxy is no directory: choose another path for --control-socket"),
        (errno.EROFS, "/run/kproxy is read-only: choose a path on another file system for --control-socket"),
        (None, "the path of a Unix socket has at most 107 bytes: choose a shorter one for --control-socket"),
    ],
)
def test_a_socket_that_cannot_be_created_comes_with_advice_about_its_path(number: int | None, advice: str) -> None:
    why = OSError("AF_UNIX path too long") if number is None else OSError(number, "no")
    error = cannot_listen("control.socket", Path("/run/kproxy/control.sock"), why)
    assert str(error).startswith("cannot listen on control.socket = '/run/kproxy/control.sock': ")
    assert f"; {advice}" in str(error)
    assert "1024" not in str(error)
    assert error.exit_code == ExitCode.CANNOT_BIND


@pytest.mark.parametrize("code", [ExitCode.USAGE, ExitCode.CANNOT_BIND])
def test_a_startup_error_carries_its_line_and_its_code(code: ExitCode) -> None:
    with pytest.raises(KproxyError, match=r"^cannot listen$") as caught:
        raise StartupError("cannot listen", code)
    assert isinstance(caught.value, StartupError)
    assert caught.value.exit_code == code


def test_a_startup_error_is_a_failure_unless_told() -> None:
    assert StartupError("no broker").exit_code == ExitCode.FAILURE
