"""A connection whose login expires, renewed between the requests of its user (KIP-368).

A broker accepts no other request during a login. So requests wait until the login is done, which takes a few round
trips. Responses to earlier requests still arrive, and the login's own responses are taken out from between them. The
task that waits to read does the work; if none reads, the task that sends does it.
"""

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final, NoReturn, Protocol

import trio

from kproxy.errors import RemoteProtocolError
from kproxy.net.network import ByteIO
from kproxy.net.wrapped_io import WrappedIO
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused
from kproxy.proxy.broker_login.login import LoginFrames
from kproxy.proxy.broker_login.sieve import AnswerSieve
from kproxy.proxy.slots import Buffer

#: A login is renewed after this share of its time.
_DUE: Final = 0.8
_LOOK_AGAIN_SECONDS: Final = 1.0
_SHORTEST_PAUSE_SECONDS: Final = 0.05
_READ: Final = 65_536


class Renewals(Protocol):
    """Begins a login again, and is informed how it ended."""

    async def begin(self) -> LoginFrames:
        """A new login. OSError: its credentials are unavailable now."""

    def succeeded(self) -> None:
        """The broker has taken it."""

    def failed(self, error: Exception) -> None:
        """It did not come about."""


class RenewingIO(WrappedIO):
    """A ``kproxy.net.network.ByteIO`` for one reader and one writer; what is written at once ends at a request's end.

    That is: each list of ``send_all`` ends there, and what ``send_at_once`` left over is given to ``send_all``.
    """

    def __init__(self, inner: ByteIO, renewals: Renewals, lifetime_ms: int, timeout_ms: int) -> None:
        """Takes over a connection that is logged in for ``lifetime_ms``; a renewal may last ``timeout_ms``."""
        super().__init__(inner)
        self._renewals = renewals
        self._timeout = timeout_ms / 1000
        self._sieve = AnswerSieve()
        #: What came beside the broker's response to a sender that read alone.
        self._beside = bytearray()
        self._login: LoginFrames | None = None
        #: A login is being renewed: nothing else is written.
        self._busy = False
        #: Part of a request may be written, and the rest not.
        self._midway = False
        self._read_alone: trio.CancelScope | None = None
        self._reader_waits: trio.CancelScope | None = None
        self._lot = trio.lowlevel.ParkingLot()
        self._due = self._ends = self._give_up = 0.0
        self._lasts(lifetime_ms)

    def _lasts(self, lifetime_ms: int) -> None:
        now = trio.current_time()
        self._due, self._ends = now + lifetime_ms / 1000 * _DUE, now + lifetime_ms / 1000
        if not lifetime_ms:
            self._due = self._ends = inf

    def pending(self) -> int:
        return bool(self._beside) or self._inner.pending()

    def close(self) -> None:
        self._inner.close()
        self._busy = False
        self._wake()

    # -- reading

    def receive_now(self, buffers: Sequence[memoryview]) -> int | None:
        """As ``ByteIO``, into the first buffer; OSError, too, if the login could not be renewed."""
        if self._beside:
            count = min(len(self._beside), len(buffers[0]))
            buffers[0][:count] = self._beside[:count]
            del self._beside[:count]
            return count
        return self._receive(buffers[0])

    def _receive(self, buffer: memoryview) -> int | None:
        start = len(self._sieve.held)
        buffer[:start] = self._sieve.held
        count = self._inner.receive_now([buffer[start:]])
        if not count:
            return count
        login = self._login
        try:
            sifted = self._sieve.sift(buffer[: start + count], None if login is None else login.correlation_id)
            if sifted.own is not None and login is not None:
                self._answered(login, sifted.own)
        except (LoginRefused, RemoteProtocolError) as error:
            self._fail(error)
        return sifted.kept or None

    def _answered(self, login: LoginFrames, frame: bytes) -> None:
        """Continues the login. The broker has read all that was written before, so one more request has room."""
        if login.answer(frame):
            out: list[Buffer] = [login.frame()]
            self._inner.send_at_once(out)
            if out:
                raise RemoteProtocolError("the broker does not read during a login")
            return
        self._login = None
        self._busy = False
        self._lasts(login.lifetime_ms)
        self._renewals.succeeded()
        self._wake()

    async def readable(self) -> None:
        """Waits until there may be something to read, and sees to it that the login is renewed meanwhile."""
        if self._beside:
            await trio.lowlevel.checkpoint()
            return
        if self._read_alone is not None:
            self._read_alone.cancel()
        try:
            with trio.move_on_at(self._look_at()) as waiting:
                self._reader_waits = waiting
                await self._inner.readable()
        finally:
            self._reader_waits = None
            if self._busy:
                self._wake()  # a sender reads, should the reader have to wait for something else now
        if not waiting.cancelled_caught:
            return
        now = trio.current_time()
        if self._busy and now >= self._give_up:
            self._late()
        if not self._busy and not self._midway and now >= self._due:
            await self._begin()

    def _look_at(self) -> float:
        if self._busy:
            return self._give_up
        now = trio.current_time()
        return self._due if now < self._due else now + _LOOK_AGAIN_SECONDS

    # -- writing

    async def send_all(self, buffers: list[Buffer]) -> int:
        return await self._send(lambda: self._inner.send_all(buffers))

    async def send_shared(self, view: memoryview) -> int:
        return await self._send(lambda: self._inner.send_shared(view))

    async def _send(self, write: Callable[[], Awaitable[int]]) -> int:
        if not self._midway:
            if not self._busy and trio.current_time() >= self._due:
                await self._begin()
            while self._busy:
                await self._renewed()
        self._midway = True
        size = await write()
        self._midway = False
        return size

    def send_at_once(self, buffers: list[Buffer]) -> int:
        """As ``ByteIO``: nothing during a login, or before one that is due."""
        if not self._midway and (self._busy or trio.current_time() >= self._due):
            return 0
        size = self._inner.send_at_once(buffers)
        self._midway = bool(buffers) and (self._midway or size > 0)
        return size

    async def _begin(self) -> None:
        """Begins a login, after the end of a request. OSError: waiting for it is of no use."""
        self._busy = True
        self._give_up = inf  # the source of the password or the token sees to that
        try:
            login = await self._renewals.begin()
        except OSError as error:
            self._renewals.failed(error)
            self._put_off()
            return
        except BaseException:
            self.close()
            raise
        self._give_up = trio.current_time() + self._timeout
        if self._reader_waits is not None:
            self._reader_waits.deadline = self._give_up
        self._login = login
        try:
            await self._inner.send_all([login.frame()])
        except BaseException:
            self.close()
            raise
        self._wake()  # a sender that waits may have to read

    def _put_off(self) -> None:
        """Lets requests continue, and tries again before the login expires. OSError if it has expired."""
        left = self._ends - trio.current_time()
        if left <= 0:
            self.close()
            raise OSError(f"{self._inner.peer}: the login has expired, and could not be renewed")
        self._due = trio.current_time() + max(_SHORTEST_PAUSE_SECONDS, left / 2)
        self._busy = False
        self._wake()

    async def _renewed(self) -> None:
        """Waits until the state of the current login has changed, and reads if nobody else does. OSError."""
        if (
            self._login is None
            or self._reader_waits is not None
            or self._read_alone is not None
            or len(self._beside) >= _READ
        ):
            await self._lot.park()
        else:
            await self._read()
        if self._inner.closed:
            raise OSError("the connection is closed")

    async def _read(self) -> None:
        room = memoryview(bytearray(_READ))
        with trio.CancelScope(deadline=self._give_up) as alone:
            self._read_alone = alone
            try:
                while self._busy and len(self._beside) < _READ:
                    count = self._receive(room)
                    if count == 0:
                        raise OSError(f"{self._inner.peer} closed the connection")
                    if count is None and not alone.cancel_called:
                        await self._inner.readable()
                    elif count is None:
                        return
                    else:
                        self._beside += room[:count]
            finally:
                self._read_alone = None
        if self._busy and trio.current_time() >= self._give_up:
            self._late()

    def _wake(self) -> None:
        self._lot.unpark_all()
        if self._read_alone is not None:
            self._read_alone.cancel()

    def _late(self) -> NoReturn:
        self._fail(OSError(f"the broker did not renew a login within {self._timeout:g} s"))

    def _fail(self, error: Exception) -> NoReturn:
        """Ends the connection. OSError, always."""
        self._renewals.failed(error)
        self.close()
        raise OSError(f"{error}") from error
