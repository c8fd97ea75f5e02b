"""Counts the control API's requests in flight, so that kproxy does not exit in the middle of a decision."""

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class InFlight:
    """The number of requests in flight."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = trio.lowlevel.ParkingLot()

    def watch(self, app: "ASGIApp") -> "ASGIApp":
        """The application, its requests counted."""

        async def counted(scope: "Scope", receive: "Receive", send: "Send") -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            self.count += 1
            try:
                await app(scope, receive, send)
            finally:
                self.count -= 1
                self._changed.unpark_all()

        return counted

    async def quiet(self) -> None:
        """Waits until no request is in flight."""
        while self.count:
            await self._changed.park()
