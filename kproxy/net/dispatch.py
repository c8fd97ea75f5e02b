"""Carries out the queued commands of a session (``kproxy.proxy.commands``)."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog
import trio

from kproxy.codec.messages import Message
from kproxy.errors import FencedByAnother, LocalProtocolError
from kproxy.net.coordinator_calls import CoordinatorCalls
from kproxy.net.track_resend import resend_all
from kproxy.net.txn.waits import Reading, wait
from kproxy.proxy.commands import AskCoordinator, Close, Mute, Resend, Unsettled, WaitForLog

if TYPE_CHECKING:
    from kproxy.net.connection import Connection

log = structlog.get_logger("kproxy.connection")


class Dispatch:
    """What one connection does for its session, beside its requests and responses."""

    def __init__(self, connection: "Connection", calls: CoordinatorCalls, reading: Reading | None) -> None:
        """``reading``: what is known of kproxy's transaction log; None: it is not read."""
        self._connection = connection
        self._session = connection.session
        self._calls = calls
        self._reading = reading
        #: No request is taken before (seconds since the epoch).
        self.muted_until = 0.0
        #: The client's connection has to end, once all is written.
        self.ending = False
        #: Requests to coordinators that have no response yet.
        self.calls_open = 0
        #: A coordinator has answered, and the task waits for other responses before all are written.
        self._gathering = False
        #: The client had logged in at the broker, on a connection that has ended: as itself kproxy must not send again
        #: what may have been refused to the client. A retry is compared with the log.
        self.forsaken = False

    def run(self, nursery: trio.Nursery) -> None:
        """Begins what the session has queued. Everything that waits runs in the nursery."""
        for command in self._session.commands:
            match command:
                case AskCoordinator():
                    self.calls_open += 1
                    nursery.start_soon(self._ask, command, self._calls.queue(command))
                case WaitForLog():
                    nursery.start_soon(self._wait, command)
                case Resend(batches):
                    if not self.forsaken:
                        nursery.start_soon(self._resend, batches)
                case Mute(until):
                    self.muted_until = max(self.muted_until, until)
                case Close():
                    self.ending = True
        self._session.commands.clear()

    async def _ask(self, command: AskCoordinator, work: Callable[[], Awaitable[Message | None]]) -> None:
        answer = await work()
        self._session.coordinator_answered(command, answer, trio.current_time() + self._connection.wall)
        self.calls_open -= 1
        self._connection.carry_out()  # one call may lead to another
        if self._gathering:
            return
        # those that end at the same time go to the client together: a call for each would cost more than all else
        self._gathering = True
        await trio.lowlevel.checkpoint()
        self._gathering = False
        await self._connection.changed()

    async def _wait(self, command: WaitForLog) -> None:
        await wait(self._session, command, self._reading, self._connection.wall)
        await self._connection.changed()

    async def _resend(self, batches: Unsettled) -> None:
        try:
            await resend_all(self._connection, batches)
        except LocalProtocolError as error:  # no epoch is left: the client's next connection has another producer id
            if isinstance(error, FencedByAnother):
                self._connection.fenced(error.taken_at)
            log.warning("batches cannot be sent again; connection closed", reason=str(error))
            self._connection.client.close()
        await self._connection.changed()
