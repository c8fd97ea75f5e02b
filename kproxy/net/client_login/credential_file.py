"""The file of clients' credentials, read again when it changes."""

import os
from collections.abc import Callable
from pathlib import Path
from stat import S_IMODE
from typing import Final

import structlog

from kproxy.config import ExitCode
from kproxy.errors import KproxyError
from kproxy.net.file_stamps import file_stamps
from kproxy.proxy.client_login.stored_credentials import Credentials, parse_credentials, show_credentials

log = structlog.get_logger("kproxy.login")

#: The file is checked for changes no more often than this.
_LOOK_SECONDS: Final = 1.0


class CredentialError(KproxyError):
    """The file cannot be used; the text says which, why, and what would be right."""

    exit_code = ExitCode.USAGE


def read_credentials(path: Path) -> Credentials:
    """CredentialError if the file can't be read, or is none of credentials."""
    try:
        return parse_credentials(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CredentialError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CredentialError(f"{path}: no UTF-8 text") from None
    except ValueError as error:
        raise CredentialError(f"{path}: {error}") from None


def write_credentials(path: Path, credentials: Credentials) -> None:
    """Replaces the file as a whole: a concurrent reader sees the old one. For its owner only, if it is new.

    CredentialError if that can't be done.
    """
    target = path.resolve()
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        new.touch(0o600, exist_ok=False)
        with new.open("w", encoding="utf-8") as file:
            if target.exists():
                stat = target.stat()
                os.fchown(file.fileno(), stat.st_uid, stat.st_gid)
                os.fchmod(file.fileno(), S_IMODE(stat.st_mode))
            file.write(show_credentials(credentials))
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise CredentialError(f"{path}: {error.strerror or error}") from None


class CredentialFile:
    """A file that may be replaced while kproxy runs; clients that have logged in stay."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """CredentialError if it can't be used; later what could be read last stays in use. ``clock``: seconds."""
        self._path = path
        self._clock = clock
        self._looked_at = clock()
        self._seen = file_stamps([path])
        self._credentials = read_credentials(path)

    def current(self) -> Credentials:
        """The content of the file, at most a second old."""
        now = self._clock()
        if now >= self._looked_at + _LOOK_SECONDS:
            self._looked_at = now
            seen = file_stamps([self._path])
            if seen != self._seen:
                self._seen = seen
                self._read()
        return self._credentials

    def _read(self) -> None:
        try:
            self._credentials = read_credentials(self._path)
        except CredentialError as error:
            log.error("new credentials cannot be used; keeping the old ones", reason=str(error))
        else:
            log.info(
                "credentials loaded", file=str(self._path), users=len({name for name, _ in self._credentials.verifiers})
            )
