"""How kproxy ends: exit codes, and the error that carries one."""

from enum import IntEnum

from kproxy.errors import KproxyError


class ExitCode(IntEnum):
    """Exit codes of the ``kproxy`` command."""

    OK = 0
    FAILURE = 1
    """It began and then failed."""
    USAGE = 2
    """The command line or the configuration is wrong; it is not worth trying again."""
    CANNOT_BIND = 3
    """An address to listen on is in use, or is none of this host's."""
    PROMISE_BROKEN = 4
    """``kproxy audit`` has found what must not be."""
    WARNINGS = 5
    """``kproxy doctor`` has found what may go wrong."""
    UNWELL = 6
    """``kproxy doctor`` has found what can't go well."""


class StartupError(KproxyError):
    """kproxy cannot begin; the message is one clear line for the operator."""

    def __init__(self, message: str, exit_code: int = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.exit_code = exit_code
