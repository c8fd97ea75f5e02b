"""The HTTP/1.1 server of the control API and the status page: ASGI on h11 and trio."""

import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp, Message, Scope

from kproxy.control.places import Evicted, Limits, Place, Places

_HANDSHAKE_SECONDS: Final = 10.0
#: A connection ends when its next request has not come by then, headers and all.
_IDLE_SECONDS: Final = 5.0
#: A client that sends nothing of a body, or takes nothing of a response, for so long is taken for gone.
_STALL_SECONDS: Final = 30.0
#: How long the rest of a body is read that the application did not want, so that the client receives the response.
_LINGER_SECONDS: Final = 1.0
_MOST_HEADER_BYTES: Final = 16_384
_READ_BYTES: Final = 65_536
#: Where the system gives no connection, it is asked again after so long.
_ACCEPT_PAUSE_SECONDS: Final = 0.1

#: The client has closed the connection, or was too slow, or another one needs its place.
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError, Evicted)

log = logging.getLogger("http")


class AsgiServer:
    """Serves one ASGI application."""

    def __init__(
        self, app: ASGIApp, tls: ssl.SSLContext | None, limits: Limits, refused: Callable[[str], None]
    ) -> None:
        """``tls``: what connections are encrypted by; None: they are not.

        ``refused`` is called with the reason whenever a connection is refused, or ended before its request was whole.
        """
        self._app = app
        self._tls = tls
        self._refused = refused
        self._places = Places(limits, refused)

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve until cancelled; takes the listening sockets over."""
        listeners = [
            trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=listener.detach())))
            for listener in sockets
        ]
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(self._accept, listener, nursery)

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        with closing(listener.socket):
            while True:
                try:
                    client = await listener.accept()
                except OSError as error:
                    self._refused("accept")
                    log.warning("cannot accept a connection: %s", error)
                    await trio.sleep(_ACCEPT_PAUSE_SECONDS)
                    continue
                place = self._place(client.socket)
                if place is None:
                    client.socket.close()
                else:
                    nursery.start_soon(self._connected, client, place)

    def _place(self, sock: trio.socket.SocketType) -> Place | None:
        """None: the connection has ended, or has to."""
        try:
            return self._places.take(sock.getpeername()[0] if _is_named(sock) else "")
        except OSError:  # its client has closed it already
            return None

    async def _connected(self, client: trio.SocketStream, place: Place) -> None:
        stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = client
        if self._tls is not None:
            stream = trio.SSLStream(client, self._tls, server_side=True, https_compatible=True)
        try:
            async with stream:
                with suppress(*_GONE):
                    if isinstance(stream, trio.SSLStream):
                        with place.waits(_HANDSHAKE_SECONDS):
                            await stream.do_handshake()
                    await _Connection(self._app, stream, client.socket, place, self._refused).run()
        except Exception:
            # one connection's fault, even if it is a bug of kproxy, is not the others'
            log.exception("a connection failed; this is a bug of kproxy, please report it")
        finally:
            place.leave()
            if isinstance(stream, trio.SSLStream):
                # It is in a reference cycle with itself, so its 70 KB of OpenSSL's would wait for Python's collector.
                vars(stream).clear()


def _is_named(sock: trio.socket.SocketType) -> bool:
    return sock.family in (socket.AF_INET, socket.AF_INET6)


class _Connection:
    def __init__(
        self,
        app: ASGIApp,
        stream: trio.abc.Stream,
        sock: trio.socket.SocketType,
        place: Place,
        refused: Callable[[str], None],
    ) -> None:
        self._app = app
        self._stream = stream
        self._place = place
        self._refused = refused
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEADER_BYTES)
        self._answered = trio.Event()
        named = _is_named(sock)
        self._base: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "scheme": "https" if isinstance(stream, trio.SSLStream) else "http",
            "root_path": "",
            "client": sock.getpeername()[:2] if named else None,
            "server": sock.getsockname()[:2] if named else None,
            "extensions": {},
        }

    async def run(self) -> None:
        """Serves one request after the other, until one of both sides ends the connection."""
        try:
            while True:
                request = await self._head()
                if not isinstance(request, h11.Request):
                    return
                await self._serve(request)
                if not self._is_over():
                    break
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
        await self._linger()

    def _is_over(self) -> bool:
        """Whether the request has come and was answered as a whole, so that another one may follow."""
        if self._http.their_state is h11.SEND_BODY:
            self._http.next_event()  # the end of a body that nobody read, if it is empty
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _head(self) -> object:
        """The next request without its body, or the end of the connection."""
        self._place.begin()
        try:
            return await self._next_event(_IDLE_SECONDS)
        except trio.TooSlowError:
            if self._http.trailing_data[0]:
                self._refused("slow_head")
            raise
        finally:
            self._place.begin()

    async def _serve(self, request: h11.Request) -> None:
        path, _, query = request.target.partition(b"?")
        scope: Scope = {
            **self._base,
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "headers": list(request.headers),
        }
        has_body = request.method != b"HEAD"
        self._answered = trio.Event()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"date", formatdate(usegmt=True).encode())]
                await self._send(h11.Response(status_code=message["status"], headers=headers))
            elif message["type"] == "http.response.body":
                if has_body and message.get("body"):
                    await self._send(h11.Data(message["body"]))
                if not message.get("more_body"):
                    await self._send(h11.EndOfMessage())
                    self._answered.set()

        try:
            await self._app(scope, self._receive, send)
        except _GONE:
            raise
        except Exception:
            log.exception("a request failed: %s %s", scope["method"], scope["path"])
            await self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _receive(self) -> Message:
        """The next part of the body; ``http.disconnect`` once the client or the response has ended."""
        if self._http.their_state is h11.SEND_BODY:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[]))
            with suppress(h11.RemoteProtocolError):
                event = await self._next_event(_STALL_SECONDS)
                if isinstance(event, h11.Data):
                    return {"type": "http.request", "body": bytes(event.data), "more_body": True}
                if isinstance(event, h11.EndOfMessage):
                    return {"type": "http.request", "body": b"", "more_body": False}
        elif self._http.their_state is not h11.ERROR:
            await self._answered.wait()
        return {"type": "http.disconnect"}

    async def _next_event(self, seconds: float) -> object:
        with self._place.waits(seconds):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some(_READ_BYTES)))
        return event

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            with self._place.waits(_STALL_SECONDS):
                await self._stream.send_all(data)

    async def _refuse(self, status: int) -> None:
        """A response without the application; none if it has begun its own."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(
                h11.Response(status_code=status, headers=[(b"content-length", b"0"), (b"connection", b"close")])
            )
            await self._send(h11.EndOfMessage())

    async def _linger(self) -> None:
        """Ends the connection so that the client receives the response even if it is still sending."""
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()
        with suppress(trio.TooSlowError), self._place.waits(_LINGER_SECONDS):
            while await self._stream.receive_some(_READ_BYTES):
                pass
