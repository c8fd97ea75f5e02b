"""A PostgreSQL of Debian's packages, on a port of its own, whose changes can be followed."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from kproxy.testing.kafka import die_with_parent
from kproxy.testing.ports import free_ports
from kproxy.testing.tools import Unavailable, find_tool, run_tool
from verification.agents.packages import Unpacked, unpack

__all__ = ["PostgreSQL"]

_PACKAGES: Final = ("postgresql-15", "postgresql-client-15", "libpq5", "libicu72", "libldap-2.5-0", "libxml2")
_NOBODY: Final = 65534
_READY: Final = "ready to accept connections"
_READY_S: Final = 60.0
_STOP_S: Final = 30.0
_QUERY_S: Final = 60.0
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "fsync": "off",
}


class PostgreSQL:
    """A database server in a directory, which must not exist; a context manager.

    ``port``: where it listens, on loopback. Its superuser ``postgres`` needs no password.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        [self.port] = free_ports(1)
        self._log = directory.with_suffix(".log")

    def __enter__(self) -> Self:
        """Unavailable: it does not start, or its packages can't be fetched."""
        self._unpacked = unpack(_PACKAGES)
        self._environment = {**os.environ, **self._unpacked.environment}
        data = ("-D", str(self.directory))
        make = [*_program(self._unpacked, "initdb"), *data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        run_tool([*make, "--no-locale", "--no-sync"], self.directory.parent, self._environment)
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*_program(self._unpacked, "postgres"), *data, "-p", str(self.port), *settings],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(),
            )
        deadline = time.monotonic() + _READY_S
        while _READY not in (log := self._log.read_text(encoding="utf-8", errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise Unavailable(f"PostgreSQL does not start:\n{log[-2000:]}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def execute(self, statement: str) -> str:
        """Runs a statement; what it prints, one line for each row. ValueError: it fails."""
        done = self._query(statement)
        if done.returncode:
            raise ValueError(done.stderr.strip())
        return done.stdout.strip()

    def _query(self, statement: str) -> subprocess.CompletedProcess[str]:
        place = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres")
        return subprocess.run(
            [str(self._unpacked.one("usr/lib/postgresql/*/bin/psql")), "-XqAt", *place, "-f", "-"],
            env=self._environment,
            input=f"\\set ON_ERROR_STOP on\n{statement};\n",
            capture_output=True,
            text=True,
            timeout=_QUERY_S,
            check=False,
        )


def _program(unpacked: Unpacked, name: str) -> Sequence[str]:
    """The command of a program that refuses to run as root. Root runs it in a namespace where it is another user."""
    program = str(unpacked.one(f"usr/lib/postgresql/*/bin/{name}"))
    if os.geteuid() != 0:
        return [program]
    unshare = find_tool("unshare", "util-linux (Debian: apt-get install util-linux)")
    return [unshare, "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", program]
