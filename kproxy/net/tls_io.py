"""TLS over a non-blocking socket, with the interface of ``SocketIO``, so that no caller knows of it.

The handshake of an accepted connection proceeds while its first bytes are awaited: a client that is slow at it blocks
no other. Each record is one write, so that bytes which the peer's kernel has acknowledged can be counted as bytes of
the content: half a record is nothing to its reader.
"""

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

import trio

from kproxy.net.socket_io import SocketIO
from kproxy.net.tls_context import asked_name
from kproxy.net.wrapped_io import WrappedIO
from kproxy.proxy.slots import Buffer

#: The longest content of a TLS record (RFC 8446, 5.1).
_RECORD_BYTES: Final = 16_384
#: So much content is encrypted before it is written; a writer that waits holds no more than this of ciphertext.
_ROUND_BYTES: Final = 262_144
#: Records whose ends are remembered before it is looked which have arrived.
_MOST_RECORDS: Final = 256


class TlsIO(WrappedIO):
    """A TLS connection for one reader and one writer task (``kproxy.net.network.ByteIO``)."""

    __slots__ = (
        "_acknowledged",
        "_done",
        "_dry",
        "_ends",
        "_failed",
        "_given",
        "_in",
        "_left",
        "_made",
        "_out",
        "_plain",
        "_scratch",
        "_sending",
        "_ssl",
        "_told",
        "_unacked",
    )

    def __init__(
        self,
        inner: SocketIO,
        context: ssl.SSLContext,
        scratch: memoryview,
        *,
        server_name: str | None = None,
        failed: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Takes over a connection, as its client if ``server_name`` says whom to expect, else as its server.

        ``scratch`` is for ciphertext between two calls that do not wait; all connections may share it.
        ``failed`` is called with the reason if a handshake fails.
        """
        super().__init__(inner)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._in, self._out, server_side=server_name is None, server_hostname=server_name)
        self._failed = failed
        self._done = False
        #: Whether all bytes of the socket have been taken, and all content of them.
        self._dry = False
        self._sending = False
        self._scratch = scratch
        #: Ciphertext that the kernel has not taken.
        self._left: list[Buffer] = []
        #: Bytes of ciphertext that were made, and that the kernel surely has.
        self._made = self._given = 0
        #: Bytes of content that were encrypted, that were reported as written, and that have arrived.
        self._plain = self._told = self._acknowledged = 0
        #: Bytes of ciphertext and of content at the end of each record that may not have arrived.
        self._ends: deque[tuple[int, int]] = deque()
        self._unacked = 0

    @property
    def server_name(self) -> str | None:
        return asked_name(self._ssl)

    @property
    def peer_certificate(self) -> bytes | None:
        return self._ssl.getpeercert(binary_form=True) if self._done else None

    def pending(self) -> int:
        if self.closed:
            return 0
        unread = self._inner.pending()
        return unread if self._dry else max(1, unread + self._in.pending + self._ssl.pending())

    @property
    def greets(self) -> bool:
        return not self._done

    # -- the handshake

    async def handshake(self) -> None:
        """Comes to terms with the peer. OSError (ssl.SSLError) if that fails."""
        while not self._shake():
            await self._inner.readable()

    def _shake(self) -> bool:
        """Continues the handshake as far as the received bytes allow; returns whether it is complete."""
        while not self._done:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                self._flush_now()
                if not self._feed():
                    return False
            except OSError as error:
                self._give_up(error)
                raise
            else:
                self._done = True
                self._flush_now()
        return True

    def _give_up(self, error: OSError) -> None:
        try:
            self._flush_now()  # the alert that tells the peer why
        finally:
            self._failed(getattr(error, "reason", None) or str(error))

    # -- reading

    def receive_now(self, buffers: Sequence[memoryview]) -> int | None:
        if not self._shake():
            return None
        total = 0
        for buffer in buffers:
            filled = 0
            while filled < len(buffer):
                count = self._read(buffer[filled:])
                if not count:
                    return total or count
                filled += count
                total += count
        return total

    def _read(self, buffer: memoryview) -> int | None:
        while True:
            try:
                return cast("int", self._ssl.read(len(buffer), buffer))
            except ssl.SSLWantReadError:
                if not self._feed():
                    return None
            except ssl.SSLEOFError:
                return 0  # no farewell: many clients just close

    def _feed(self) -> bool:
        """Takes what the socket has; False if that is nothing yet."""
        count = self._inner.receive_now([self._scratch])
        self._dry = count is None
        if count is None:
            if self._out.pending:
                self._flush_now()
            return False
        if count:
            self._in.write(self._scratch[:count])
        else:
            self._in.write_eof()
        return True

    async def readable(self) -> None:
        if not self._dry and not self.closed:
            await trio.lowlevel.checkpoint()
            return
        await self._inner.readable()
        self._dry = False

    # -- writing

    async def send_all(self, buffers: list[Buffer]) -> int:
        total = 0
        self._sending = True
        try:
            while buffers or self._left or self._out.pending:
                total += self._encrypt(buffers, _ROUND_BYTES)
                await self._send_made()
        finally:
            self._sending = False
        self._told += total
        return total

    async def send_shared(self, view: memoryview) -> int:
        """As ``send_all``, of a view whose bytes may change while this task waits: it is encrypted before."""
        size = self._encrypt([view], len(view))
        await self.send_all([])
        self._told += size
        return size

    async def _send_made(self) -> None:
        made = self._take_made()
        size = sum(map(len, made))
        await self._inner.send_all(made)
        self._given += size

    def send_at_once(self, buffers: list[Buffer]) -> int:
        """Writes what goes without a wait and takes it out of the list; the bytes written. OSError if broken.

        What was encrypted and not taken by the kernel leaves an empty buffer in the list: there is still a write to do.
        """
        total = taken = 0
        while not self._sending and not self._flush_now():
            taken = self._encrypt(buffers, _RECORD_BYTES)
            total += taken
            if not taken:
                break
        else:
            if not buffers:
                buffers.append(b"")
        self._told += total
        return total

    def _encrypt(self, buffers: list[Buffer], most: int) -> int:
        """Takes up to ``most`` bytes out of the list and makes records of them; how many."""
        if not self._done:
            raise OSError("the TLS handshake is not over")
        taken = 0
        while buffers and taken < most:
            view = memoryview(buffers[0])[: min(_RECORD_BYTES, most - taken)]
            if len(view):
                self._ssl.write(view)
                taken += len(view)
                self._note_end(len(view))
            if len(view) == len(buffers[0]):
                buffers.pop(0)
            else:
                buffers[0] = memoryview(buffers[0])[len(view) :]
        return taken

    def _note_end(self, size: int) -> None:
        self._plain += size
        self._ends.append((self._made + self._out.pending, self._plain))
        if len(self._ends) > _MOST_RECORDS:
            self._arrived()

    def _take_made(self) -> list[Buffer]:
        """All ciphertext that is to be written, in order."""
        made, self._left = self._left, []
        data = self._out.read()
        self._made += len(data)
        if data:
            made.append(data)
        return made

    def _flush_now(self) -> bool:
        """Writes what the kernel takes of the ciphertext; whether some is left. A writer that waits does it itself."""
        if not self._sending:
            self._left = self._take_made()
            if self._left:
                self._given += self._inner.send_at_once(self._left)
        return bool(self._left)

    def _arrived(self) -> int:
        """Bytes of content of which the peer's kernel has acknowledged every byte of their records."""
        acked = self._given - self._inner.unacked()
        while self._ends and self._ends[0][0] <= acked:
            self._acknowledged = self._ends.popleft()[1]
        return self._acknowledged

    def unacked(self) -> int:
        if not self.closed:
            self._unacked = max(0, self._told - self._arrived())
        return self._unacked

    def close(self) -> None:
        """Says farewell, if that can be done at once, and closes the socket. May be called again."""
        if self.closed:
            return
        self._unacked = self.unacked()
        if self._done and not (self._sending or self._left or self.peer_closed()):
            with suppress(OSError):  # the peer's own farewell is not waited for
                self._ssl.unwrap()
            with suppress(OSError):
                self._flush_now()
        self._inner.close()
