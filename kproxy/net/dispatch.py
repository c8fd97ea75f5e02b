"""Carries out the queued commands of a session (``kproxy.proxy.commands``)."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from kproxy.budget import MESSAGE_BYTE_STEPS
from kproxy.errors import FencedByAnother, LocalProtocolError, RemoteProtocolError
from kproxy.net.connection_state import ConnectionEvent, ConnectionState
from kproxy.net.coordinator_calls import CoordinatorCalls
from kproxy.net.long_work import beside
from kproxy.net.producer_identity import SEVERAL_ADDRESSES
from kproxy.net.track_resend import resend_all
from kproxy.net.txn.waits import CommittedReading, wait
from kproxy.proxy.commands import (
    AskCoordinator,
    Close,
    Encode,
    Mute,
    Resend,
    Unsettled,
    WaitForLog,
    WarnOfRefusal,
    WarnOfUntimed,
)
from kproxy.proxy.coordinator_requests import CoordinatorAnswer

if TYPE_CHECKING:
    from kproxy.net.connection import Connection

log = structlog.get_logger("kproxy.connection")

_ENDED: Final = ConnectionState.ENDED
#: What to do about refusals of which an honest client may be the cause.
_ADVICE: Final = {"foreign_producer_id": SEVERAL_ADDRESSES}


class Dispatch:
    """What one connection does for its session, beside its requests and responses."""

    def __init__(self, connection: "Connection", calls: CoordinatorCalls, reading: CommittedReading | None) -> None:
        """``reading``: what is known of kproxy's transaction log; None: it is not read."""
        self._connection = connection
        self._session = connection.session
        self._calls = calls
        self._reading = reading
        #: No request is taken before (seconds since the epoch).
        self.muted_until = 0.0
        #: Requests to coordinators that have no response yet.
        self.calls_open = 0
        #: A coordinator has answered, and the task waits for other responses before all are written.
        self._gathering = False
        #: Responses that no task waits for; they are written at the end of this turn of the event loop.
        self._answers: list[tuple[AskCoordinator, CoordinatorAnswer]] = []

    def run(self, nursery: trio.Nursery, *, is_alone: bool = False) -> None:
        """Begins what the session has queued. Everything that waits runs in the nursery.

        ``is_alone``: no other request came at the same time.
        """
        commands = self._session.commands[:]
        self._session.commands.clear()  # what is answered at once may lead to others
        for command in commands:
            match command:
                case AskCoordinator():
                    self.calls_open += 1
                    if not self._calls.begin(command, partial(self._answered, command), is_alone=is_alone):
                        nursery.start_soon(self._ask, command, self._calls.queue(command))
                case Encode() | WaitForLog() | Resend():
                    self._begin(nursery, command)
                case Mute(until):
                    self.muted_until = max(self.muted_until, until)
                case Close():
                    self._connection.happens(ConnectionEvent.HAS_TO_END)
                case WarnOfRefusal(reason):
                    self._warn_of_refusal(reason)
                case WarnOfUntimed(member, key):
                    self._connection.keeper.warn_of_untimed(member, key)

    def _warn_of_refusal(self, reason: str) -> None:
        """Logs the first refusal of its kind on this connection; further ones are counted."""
        client = self._session.client
        log.warning(
            "batches of a client are refused. Further ones on its connection are only counted (kproxy_refusals_total)",
            client_id=client.client_id,
            peer=self._connection.client.peer,
            principal=client.principal,
            reason=reason,
            advice=_ADVICE.get(reason, "find the program: it sends what no Kafka client sends by itself"),
        )

    def _begin(self, nursery: trio.Nursery, command: Encode | WaitForLog | Resend) -> None:
        match command:
            case Encode():
                nursery.start_soon(self._encode, command)
            case WaitForLog():
                nursery.start_soon(self._wait, command)
            case Resend(batches) if self._connection.state is not ConnectionState.FORSAKEN:
                nursery.start_soon(self._resend, batches)

    async def _ask(self, command: AskCoordinator, work: Callable[[], Awaitable[CoordinatorAnswer | None]]) -> None:
        answer = await work()
        self._session.coordinator_answered(command, answer, trio.current_time() + self._connection.wall)
        self.calls_open -= 1
        self._connection.carry_out()  # one call may lead to another
        if self._gathering:
            return
        if self.calls_open:
            # those that end at the same time go to the client together: a call for each would cost more than all else
            self._gathering = True
            await trio.lowlevel.checkpoint()
            self._gathering = False
        await self._connection.changed()

    def _answered(self, command: AskCoordinator, answer: CoordinatorAnswer) -> None:
        if self._connection.state is _ENDED:
            return
        if not self._answers:
            self._calls.turn.call(self._write_answers)
        self._answers.append((command, answer))

    def _write_answers(self) -> None:
        answers, self._answers = self._answers, []
        if self._connection.state is _ENDED:
            return
        now = self._connection.now() + self._connection.wall
        self.calls_open -= len(answers)
        try:
            for command, answer in answers:
                self._session.coordinator_answered(command, answer, now)
            self._connection.changed_now()
        except Exception:
            # one connection's fault, even if it is a bug of ours, is not the others'
            log.exception("connection failed; this is a bug of kproxy, please report it")
            self._connection.client.close()

    def close(self) -> None:
        """Drops what nobody receives any more."""
        self._answers.clear()

    async def _encode(self, command: Encode) -> None:
        try:
            frame = await beside(command.encode)
        except (LocalProtocolError, RemoteProtocolError) as error:
            log.warning("response cannot be written; connection closed", error=str(error))
            self._session.close()
        else:
            self._session.encoded(command.slot, frame, trio.current_time() + self._connection.wall)
            del frame, command  # the client may be slow, and the message is not needed any more
        await self._connection.changed()

    async def _wait(self, command: WaitForLog) -> None:
        turn = partial(self._connection.take_turn, command.slot.size * MESSAGE_BYTE_STEPS)
        await wait(self._session, command, self._reading, self._connection.wall, turn)
        await self._connection.changed()

    async def _resend(self, batches: Unsettled) -> None:
        try:
            await resend_all(self._connection, batches)
        except LocalProtocolError as error:  # no epoch is left: the client's next connection has another producer id
            if isinstance(error, FencedByAnother):
                self._connection.fenced(error.taken_at)
            log.warning("batches cannot be sent again; connection closed", reason=str(error))
            self._connection.happens(ConnectionEvent.HAS_TO_END)
            self._connection.client.close()
        await self._connection.changed()
