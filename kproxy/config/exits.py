"""How kproxy ends: exit codes, and the errors that carry one."""

import errno
from enum import IntEnum
from pathlib import Path
from typing import Final

from kproxy.errors import KproxyError


class ExitCode(IntEnum):
    """Exit codes of the ``kproxy`` command; ``EXIT_CODES`` says what each means."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CANNOT_BIND = 3
    PROMISE_BROKEN = 4
    WARNINGS = 5
    UNWELL = 6
    INSTANCE_TAKEN = 7
    INTERRUPTED = 130


#: For ``--help``, the manual page and docs/configuration.md.
EXIT_CODES: Final = {
    ExitCode.OK: "success",
    ExitCode.FAILURE: "failed while running",
    ExitCode.USAGE: "wrong command line or configuration: trying again does not help",
    ExitCode.CANNOT_BIND: "cannot listen: the address is in use, or not an address of this host",
    ExitCode.PROMISE_BROKEN: "kproxy audit found a promise broken",
    ExitCode.WARNINGS: "kproxy doctor found warnings",
    ExitCode.UNWELL: "kproxy doctor found failures",
    ExitCode.INSTANCE_TAKEN: "another process runs with this instance.id, or has taken it over",
    ExitCode.INTERRUPTED: "a command other than kproxy run was interrupted (Ctrl-C)",
}
_ADVICE: Final = {
    errno.EADDRINUSE: "another process uses it: choose another for {flag}, or stop that process",
    errno.EADDRNOTAVAIL: "it is not an address of this host: for all of them {flag} :PORT",
    errno.EACCES: "ports below 1024 need the capability CAP_NET_BIND_SERVICE: choose another for {flag}",
}
#: The same for a path at which a Unix socket is to be created.
_PATH_ADVICE: Final = {
    errno.EACCES: "kproxy's user may not create it: let that user write to {parent}, or choose another path for {flag}",
    errno.ENOENT: "there is no directory {parent}: create it, or choose another path for {flag}",
    errno.ENOTDIR: "{parent} is no directory: choose another path for {flag}",
    errno.EROFS: "{parent} is read-only: choose a path on another file system for {flag}",
}
_LONG_PATH: Final = "the path of a Unix socket has at most 107 bytes: choose a shorter one for {flag}"


class StartupError(KproxyError):
    """kproxy cannot begin; the message is one clear line for the operator."""

    def __init__(self, message: str, exit_code: int = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def startup_error(group: BaseExceptionGroup[StartupError]) -> StartupError:
    """The first error of a group, which nurseries may have put into groups of its own."""
    inner = group.exceptions[0]
    return startup_error(inner) if isinstance(inner, BaseExceptionGroup) else inner


def cannot_listen(option: str, where: object, why: OSError | str) -> StartupError:
    """Return the error for an option whose address cannot be listened on, with what to do about it."""
    message = f"cannot listen on {option} = '{where}': "
    if isinstance(why, str):
        return StartupError(message + why, ExitCode.CANNOT_BIND)
    flag = f"--{option.replace('.', '-')}"
    if isinstance(where, Path):
        advice = _PATH_ADVICE.get(why.errno, "") if why.errno else _LONG_PATH
        advice = advice.format(flag=flag, parent=where.absolute().parent)
    else:
        advice = _ADVICE.get(why.errno or 0, "").format(flag=flag)
    more = f"; {advice}" if advice else ""
    return StartupError(f"{message}{why.strerror or why}{more}", ExitCode.CANNOT_BIND)
