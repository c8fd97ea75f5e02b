"""Hands each frame to the session, and carries out what it has to wait for until it is taken or has to be refused."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from kproxy.budget import FREE_BYTES, MESSAGE_BYTE_STEPS, TURN_FRAMES
from kproxy.dedup.identity import Identity
from kproxy.dedup.origin import Software
from kproxy.net.lane_leases import Lanes
from kproxy.net.producer_identity import identity_of
from kproxy.net.retry_ledger_keeper import RetryLedgerKeeper
from kproxy.proxy.commands import (
    AskVersions,
    AwaitEnd,
    AwaitOutcomes,
    AwaitProgress,
    Beside,
    Blocking,
    CheckLogin,
    Connect,
    DelayRefusal,
    LeaseProducerId,
    OpenLog,
    Resolve,
)
from kproxy.proxy.principals import of_certificate
from kproxy.proxy.waiting_request import WaitingRequest

if TYPE_CHECKING:
    from kproxy.dedup.lanes import Lane
    from kproxy.net.client_login.login_worker import LoginWorker
    from kproxy.net.connection import Connection

T = TypeVar("T")

_PRODUCE = b"\0\0"


class Finished(Exception):
    """The client's connection has to end, through no fault of its own."""


class Unreachable(Finished):
    """No broker can be reached for the connection, and nothing was asked of one over it."""


class Intake:
    """Takes the requests of one connection in order, and does what the session needs for them."""

    def __init__(
        self, connection: "Connection", lanes: Lanes, keeper: RetryLedgerKeeper, logins: "LoginWorker | None" = None
    ) -> None:
        """``lanes``, ``keeper`` and ``logins`` are those of the process."""
        self._connection = connection
        self._session = connection.session
        self._config = connection.config
        self._lanes = lanes
        self._keeper = keeper
        self._logins = logins
        self._opened_at = trio.current_time()
        self._introduced = False
        self._lane: Lane | None = None
        self._joined = False
        #: Requests that came together, before a response to any.
        self._together = 1
        #: The wait of the request that can't be taken yet.
        self._waiting: trio.CancelScope | None = None

    async def take(self, frames: list[bytearray]) -> None:
        """Hands whole frames to the session.

        Finished: the connection has to end. RemoteProtocolError: so, and its client is to blame.
        """
        connection, session = self._connection, self._session
        now = connection.read_at + connection.wall
        if not self._introduced and not session.logs_in:
            self._introduce()
        if len(frames) > 1:
            self._note_unread(sum(frame[4:6] == _PRODUCE for frame in frames))
        left = TURN_FRAMES
        for frame in frames:
            if not left:
                await connection.let_others_work()
                left = TURN_FRAMES
            left -= 1
            if connection.dispatch.muted_until > now:
                await self._unmuted()
                now = connection.read_at + connection.wall
            if not session.producer.in_flight:
                connection.upstream.answered_at = connection.read_at  # from here on the broker owes a response
            connection.at_hand = len(frame)
            # nearly all are spared a coroutine
            waiting = (
                await self._hand(frame, partial(session.request, frame))
                if _is_long(frame)
                else session.request(frame, now)
            )
            if waiting is not None:
                await self._wait_for(waiting, frame)
                connection.look_whether_empty()
            if session.commands:
                connection.carry_out(is_alone=len(frames) == 1)
            connection.untaken -= len(frame)
            connection.at_hand = 0
        if not self._introduced and not session.awaits_login:
            self._introduced = True
            connection.logged_in()

    async def _unmuted(self) -> None:
        """Waits while the client is muted, as a broker mutes its channel (KIP-219)."""
        connection, dispatch = self._connection, self._connection.dispatch
        while dispatch.muted_until > (now := trio.current_time() + connection.wall) and not connection.state.has_to_end:
            await connection.flush()
            await trio.sleep(dispatch.muted_until - now)
        connection.read_at = trio.current_time()
        connection.look_whether_empty()

    def _introduce(self) -> None:
        """Takes the client for whom its certificate says it is. RemoteProtocolError: for nobody who may come in."""
        self._introduced = True
        rules = self._config.ssl_principal_mapping_rules
        self._session.introduced(of_certificate(self._connection.client.peer_certificate, rules))

    def end(self, now: float) -> None:
        """Records that the client has closed its end of the connection, at ``now`` seconds since the epoch."""
        member = self._session.client_ended(now)
        if member is not None:
            self._keeper.look_ahead(member, now)

    def fenced(self, taken_at: float) -> None:
        """Records that another instance fenced the lane, seen with a request of ``taken_at``."""
        if self._lane is not None:
            self._lanes.fenced(self._lane, taken_at)

    def give_up(self) -> None:
        """Ends the wait of the request that can't be taken yet: its connection has to end."""
        if self._waiting is not None:
            self._waiting.cancel()

    def close(self, now: float) -> None:
        """Gives the lane back. Unconfirmed batches are searched for in the log when their retry arrives."""
        member, lane = self._session.client_ended(now), self._session.abandon(now)
        if member is not None:
            self._keeper.left(member)
        if lane is not None:
            self._lanes.give_back(lane)

    def _note_unread(self, requests: int) -> None:
        """Note that so many requests came, or are about to, before a response to any."""
        self._together = requests
        self._session.pipelined(requests)

    async def _wait_for(self, waiting: WaitingRequest, frame: bytearray) -> None:
        """Carries out what a request waits for until the session has taken it, or it has to be refused."""
        connection = self._connection
        with closing(waiting):
            due, seen = self._due(waiting), -1
            if waiting.joins:
                self._join(identity_of(connection), waiting)
            while waiting.command is not None:
                await connection.flush()
                if not connection.state.has_to_end:
                    with trio.move_on_at(due) as self._waiting:
                        await self._act(waiting.command, waiting, seen)
                    self._waiting = None
                if connection.state.has_to_end:
                    raise Finished("the broker's connection ended")
                connection.read_at = trio.current_time()
                if connection.read_at >= due:
                    self._refuse_late(waiting)
                    break
                if not self._session.producer.in_flight:
                    connection.upstream.answered_at = connection.read_at
                seen = self._keeper.version
                await self._hand(frame, waiting.resume)
        await connection.flush()

    async def _hand(self, frame: bytearray, take: Callable[[float], T]) -> T:
        """Has the session take a frame, now; a long one once it is its turn, and there is memory for what is in it."""
        connection, is_long = self._connection, _is_long(frame)
        if is_long:
            await connection.make_room(len(frame) * MESSAGE_BYTE_STEPS)
        taken = take(connection.read_at + connection.wall)
        if is_long:
            connection.account()  # others that wait for memory learn of it at once
        return taken

    async def _act(self, command: Blocking, waiting: WaitingRequest, seen: int) -> None:
        connection = self._connection
        match command:
            case Connect():
                await connection.upstream.connect()
            case AskVersions():
                await connection.upstream.ask_versions()
            case CheckLogin() | DelayRefusal():
                assert self._logins is not None
                client = connection.client
                await self._logins.serve(command, self._session.client.client_id, client.peer, client.peer_closed)
            case LeaseProducerId():
                await self._lease(waiting)
            case OpenLog():
                await self._lanes.log.opened.wait()
            case Beside():
                await connection.budget.beside(command.work.whole, self._config.decompression_max_bytes)
            case Resolve() | AwaitOutcomes():
                await self._outcome(command, seen)
            case AwaitEnd():
                await trio.sleep_until(command.until - connection.wall)
            case AwaitProgress() if self._session.blocked:
                await connection.progressed()

    async def _outcome(self, command: Resolve | AwaitOutcomes, seen: int) -> None:
        if isinstance(command, Resolve):
            now = trio.current_time() + self._connection.wall
            await self._keeper.look(command.member, command.prerequisite, now).wait()
        else:
            await self._keeper.changed(seen)

    def _due(self, waiting: WaitingRequest) -> float:
        """The time (trio's clock) when a request that waits has to be answered; without a client it ends then."""
        due = waiting.due
        if due is None or self._connection.peer_closed():
            return trio.current_time() + self._config.delivery_timeout_ms / 1000
        return due - self._connection.wall

    def _refuse_late(self, waiting: WaitingRequest) -> None:
        connection = self._connection
        if waiting.due is None or connection.peer_closed():
            raise Finished("a request could not be taken")
        if connection.client.pending():
            self._note_unread(2)  # the client continued without the response
        waiting.refuse(connection.read_at + connection.wall)

    async def _lease(self, waiting: WaitingRequest) -> None:
        identity = identity_of(self._connection)
        self._join(identity, waiting)
        with trio.move_on_after(self._config.upstream_request_timeout_ms / 1000):
            lane = self._lane = await self._lanes.lease(identity, self._connection.expire)
            self._session.lease(lane)
            return
        raise Finished("no broker gives a producer id")

    def _join(self, identity: Identity, waiting: WaitingRequest) -> None:
        """Shows a request that waits to the producer's other connections, so that none overtakes it."""
        if self._joined:
            return
        self._joined = True
        opened_at = self._opened_at + self._connection.wall
        client = self._session.client
        software = Software(client.software, client.software_version)
        member = self._keeper.join(identity, self._connection, self._connection.client, opened_at, software)
        member.pipelined(self._together)
        self._session.join(member)
        waiting.waits()


def _is_long(frame: bytearray) -> bool:
    """Whether so much is decoded of a request that it has to be its turn. Of Produce only a few fields are."""
    return len(frame) > FREE_BYTES and frame[4:6] != _PRODUCE
