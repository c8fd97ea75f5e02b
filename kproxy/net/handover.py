"""One kproxy takes over from another on the same host, under the same instance.id and at the same ports.

The listening sockets themselves pass from one process to the other (SCM_RIGHTS, unix(7)), so there is one queue of
connections all the time. SO_REUSEPORT would give each process a queue of its own, and a connection that waits in the
queue of the one that leaves is reset when that process closes it.

    new: finds the old one, takes its sockets, reaches the brokers, reads the transaction log; accepts no connection yet
    new -> old: take           old: accepts no connection any more, begins to drain
    old -> new: taken          new: accepts; what needs the instance.id waits (producer ids, claims of transactions)
    old: ends                  new: has the instance.id to itself, and reads what the old one noted of its producer ids

The kernel shows that the old one has ended: its end of their connection closes after all else, or with the process.
"""

import array
import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
import trio

from kproxy.config import StartupError
from kproxy.errors import KproxyError

log = structlog.get_logger("kproxy.handover")

_MESSAGE_BYTES: Final = 4096
_FD_BYTES: Final = array.array("i").itemsize
#: struct ucred: pid, uid, gid.
_CREDENTIALS: Final = struct.Struct("3i")
#: So much longer than it said the old one may take to end, before it is killed: two must not share an instance.id.
_PATIENCE_SECONDS: Final = 5.0
#: For a message of a process on the same host.
_ANSWER_SECONDS: Final = 10.0


class HandOverError(KproxyError):
    """The other process did not say what it should; nothing has changed hands."""


class Listening(NamedTuple):
    """A listening socket, and the broker whose port it is (None: to bootstrap from)."""

    sock: socket.socket
    node_id: int | None


class Predecessor:
    """The kproxy that is to be replaced, as the new one sees it."""

    def __init__(self, sock: trio.socket.SocketType, instance_id: str, listening: Sequence[Listening]) -> None:
        """Made by ``find``."""
        self._sock = sock
        self.instance_id = instance_id
        self.listening = listening
        self._grace_ms = 0

    @classmethod
    async def find(cls, path: Path) -> "Predecessor | None":
        """Who hands over at a socket; None if nobody is there. StartupError if it can't be spoken with."""
        sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with trio.fail_after(_ANSWER_SECONDS):
                await sock.connect(str(path))
                return await _introduced(sock)
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        except (OSError, HandOverError, trio.TooSlowError) as error:
            sock.close()
            raise StartupError(f"cannot take over at handover.socket = '{path}': {_why(error)}") from None

    async def take(self) -> None:
        """Has the old process accept no connections, and drain. StartupError if it does not confirm: it continues."""
        try:
            with trio.fail_after(_ANSWER_SECONDS):
                await _send(self._sock, {"take": True})
                answer, _ = await _receive(self._sock)
        except (OSError, HandOverError, trio.TooSlowError) as error:
            raise StartupError(f"the kproxy that was to hand over did not: {_why(error)}") from None
        self._grace_ms = int(answer["grace_ms"])
        log.info("taken over; waiting for the former kproxy to end", grace_ms=self._grace_ms)

    async def ended(self) -> None:
        """Returns when the process has let go of all; kills it if it takes longer than it said."""
        with trio.move_on_after(self._grace_ms / 1000 + _PATIENCE_SECONDS) as scope:
            await self._ended()
        if scope.cancelled_caught:
            pid = _peer(self._sock)[0]
            log.error("the former kproxy did not end; killing it", pid=pid)
            if pid > 0:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await self._ended()
        self._sock.close()
        log.info("the former kproxy has ended")

    async def _ended(self) -> None:
        with suppress(OSError):
            while await self._sock.recv(_MESSAGE_BYTES):
                pass

    def close(self) -> None:
        """Lets the old process continue as before, unless it has handed over."""
        self._sock.close()
        for listening in self.listening:
            listening.sock.close()


def _check_user(sock: trio.socket.SocketType) -> int:
    """The process at the other end. HandOverError if it runs as another user than root or this one."""
    pid, uid, _ = _peer(sock)
    if uid not in (0, os.getuid()):
        raise HandOverError(f"the process {pid} at the other end runs as uid {uid}, not as {os.getuid()} or root")
    return pid


async def _introduced(sock: trio.socket.SocketType) -> Predecessor:
    _check_user(sock)
    hello, _ = await _receive(sock)
    listening = []
    for _ in range(int(hello["listeners"])):
        message, fds = await _receive(sock)
        if len(fds) != 1:
            raise HandOverError("a socket is missing")
        listening.append(Listening(socket.socket(fileno=fds[0]), message["node_id"]))
    return Predecessor(sock, str(hello["instance_id"]), listening)


class HandOver:
    """Gives the listening sockets to the kproxy that comes next."""

    def __init__(
        self,
        instance_id: str,
        listening: Callable[[], Sequence[tuple[int, int | None]]],
        taken: Callable[[], int],
    ) -> None:
        """``listening``: file descriptors and brokers. ``taken`` is called when they have changed hands.

        What it gives is the time that this process may still take, in ms.
        """
        self._instance_id = instance_id
        self._listening = listening
        self._taken = taken
        #: Held until the process ends: its end shows the other process that this one has ended.
        self._successor: trio.socket.SocketType | None = None

    async def serve(self, listener: socket.socket) -> None:
        """Waits for the process that takes over, one at a time, until one has."""
        listener.setblocking(False)
        accepting = trio.socket.from_stdlib_socket(listener)
        while self._successor is None:
            sock, _ = await accepting.accept()
            try:
                await self._offer(sock)
            except (OSError, HandOverError, trio.TooSlowError) as error:
                log.warning("no process took over; continuing", reason=_why(error))
            finally:
                if self._successor is not sock:
                    sock.close()

    async def _offer(self, sock: trio.socket.SocketType) -> None:
        pid = _check_user(sock)
        listening = self._listening()
        with trio.fail_after(_ANSWER_SECONDS):
            await _send(sock, {"instance_id": self._instance_id, "listeners": len(listening)})
            for fd, node_id in listening:
                await _send(sock, {"node_id": node_id}, fd)
        log.info("another kproxy prepares to take over", pid=pid)
        await _receive(sock)  # it may wait for brokers for as long as it likes; its end says that it gave up
        self._successor = sock
        await _send(sock, {"grace_ms": self._taken()})

    def close(self) -> None:
        """After all else: shows the other process that this one has ended."""
        if self._successor is not None:
            self._successor.close()


async def _send(sock: trio.socket.SocketType, message: dict[str, Any], fd: int | None = None) -> None:
    rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    await sock.sendmsg([json.dumps(message).encode()], rights)


async def _receive(sock: trio.socket.SocketType) -> tuple[dict[str, Any], list[int]]:
    """A message, and the file descriptors that came with it. HandOverError if it is none."""
    space = socket.CMSG_SPACE(_FD_BYTES)
    data, rights, _, _ = await sock.recvmsg(_MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % _FD_BYTES])
    try:
        message = json.loads(data)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        for fd in fds:
            os.close(fd)
        raise HandOverError("it ended" if not data else "what it says is not understood")
    return message, list(fds)


def _peer(sock: trio.socket.SocketType) -> tuple[int, int, int]:
    """Process, user and group at the other end."""
    return _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))


def _why(error: BaseException) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"no answer within {_ANSWER_SECONDS:.0f} s"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
