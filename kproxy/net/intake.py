"""From frames to what the session took: each is offered until it can be taken, or its client must be told something."""

from typing import TYPE_CHECKING

import trio

from kproxy.net.client_login.login_worker import LoginWorker
from kproxy.net.lane_leases import Lanes
from kproxy.net.producer_identity import identity_of
from kproxy.net.retry_ledger_keeper import RetryLedgerKeeper
from kproxy.proxy.principals import of_certificate
from kproxy.proxy.produce_gate import Need

if TYPE_CHECKING:
    from kproxy.net.connection import Connection

_PRODUCE = b"\0\0"


class Finished(Exception):
    """The client's connection has to end, through no fault of its own."""


class Intake:
    """Takes the requests of one connection in order, and does what the session needs for them."""

    def __init__(
        self, connection: "Connection", lanes: Lanes, keeper: RetryLedgerKeeper, logins: LoginWorker | None = None
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
        #: Requests that came together, before an answer to any.
        self._together = 1

    async def take(self, frames: list[bytearray]) -> None:
        """Hands whole frames to the session.

        Finished: the connection has to end. RemoteProtocolError: so, and its client is to blame.
        """
        connection, session = self._connection, self._session
        now = connection.heard + connection.wall
        if not self._introduced and session.login is None:
            self._introduce()
        if len(frames) > 1:
            self._note_unread(sum(frame[4:6] == _PRODUCE for frame in frames))
        for frame in frames:
            if session.link.muted_until > now:
                await self._unmuted()
                now = connection.heard + connection.wall
            if not session.gate.producer.in_flight:
                connection.answered_at = connection.heard  # from here on the broker owes an answer
            need = session.request(frame, now)
            if need is not None:
                await self._wait_for(need, frame)
                connection.look_whether_empty()
            if session.coordinator_calls:
                connection.start_coordinator_calls()
        if not self._introduced and session.login is not None and session.login.passed:
            self._introduced = True
            connection.logged_in()

    async def _unmuted(self) -> None:
        """Waits while the client must not be heard, as a broker mutes its channel (KIP-219)."""
        connection, link = self._connection, self._session.link
        while link.muted_until > (now := trio.current_time() + connection.wall) and not link.finished:
            await connection.flush()
            await trio.sleep(link.muted_until - now)
        connection.heard = trio.current_time()
        connection.look_whether_empty()

    def _introduce(self) -> None:
        """Takes the client for whom its certificate says it is. RemoteProtocolError: for nobody who may come in."""
        self._introduced = True
        rules = self._config.ssl_principal_mapping_rules
        self._session.ctx.know(principal=of_certificate(self._connection.client.peer_certificate, rules))

    def connected(self, node_id: int) -> None:
        """Takes note of the broker that requests go to from now on."""
        if self._session.gate.member is not None:
            self._session.gate.member.moved(node_id)

    def end(self, now: float) -> None:
        """Takes note that the client's end of the connection is over, at ``now`` seconds since the epoch."""
        member = self._session.gate.member
        if member is not None:
            member.end(now)
            member.drained()
            self._keeper.look_ahead(member, now)

    def close(self, now: float) -> None:
        """Gives the lane back. What has no fate yet will be looked for in the log when it comes again."""
        gate = self._session.gate
        if gate.producer.lane is not None and gate.member is not None:
            gate.member.end(now)
            gate.member.drained()
            gate.member.abandon(gate.producer.lane, now)
            self._lanes.give_back(gate.producer.lane)

    def _note_unread(self, requests: int) -> None:
        """So many requests came, or are about to, before an answer to any."""
        self._together = requests
        if self._session.gate.member is not None:
            self._session.gate.member.pipelined(requests)

    async def _wait_for(self, need: Need | None, frame: bytearray) -> None:
        """Offers a frame again until the session can take it, or its client has to be told something."""
        connection = self._connection
        due, seen = self._due(frame), -1
        while need is not None:
            self._session.gate.waits(frame)
            await connection.flush()
            if self._session.link.finished:
                raise Finished("the broker's connection ended")
            with trio.move_on_at(due):
                await self._act(need, seen)
            connection.heard = trio.current_time()
            if connection.heard >= due:
                self._refuse_late(frame)
                break
            if not self._session.gate.producer.in_flight:
                connection.answered_at = connection.heard
            seen = self._keeper.version
            need = self._session.request(frame, connection.heard + connection.wall)
        self._session.gate.waits_no_more()
        await connection.flush()

    async def _act(self, need: Need, seen: int) -> None:
        if need is Need.UPSTREAM:
            await self._connection.connect()
        elif need is Need.VERSIONS:
            await self._connection.ask_versions()
        elif need is Need.LOGIN:
            await self._log_in()
        elif need is Need.LANE:
            await self._lease()
        elif need is Need.CONVERT:
            await self._convert()
        elif need is Need.LOOK:
            gate, now = self._session.gate, trio.current_time() + self._connection.wall
            assert gate.member is not None
            assert gate.prerequisite is not None
            if seen == self._keeper.version:
                self._keeper.look(gate.member, gate.prerequisite, now)
            await self._keeper.changed(seen)
        elif need is Need.SETTLE:
            await self._keeper.changed(seen)
        elif self._session.blocked:
            await self._connection.progressed()

    async def _convert(self) -> None:
        """One conversion at a time: each may hold ``decompression.max.bytes``."""
        gate, budget = self._session.gate, self._connection.budget
        gate.convert(await trio.to_thread.run_sync(gate.conversion.whole, limiter=budget.converting))
        budget.peak = max(budget.peak, budget.used + self._config.decompression_max_bytes)

    async def _log_in(self) -> None:
        login = self._session.login
        assert login is not None
        assert self._logins is not None
        client = self._connection.client
        await self._logins.serve(login, self._session.ctx.client.client_id, client.peer, client.peer_closed)

    def _due(self, frame: bytearray) -> float:
        """When a request that waits has to be answered, by trio's clock; without a client it is given up then."""
        due = self._session.gate.due(frame)
        if due is None or self._connection.peer_closed():
            return trio.current_time() + self._config.delivery_timeout_ms / 1000
        return due - self._connection.wall

    def _refuse_late(self, frame: bytearray) -> None:
        connection = self._connection
        if self._session.gate.due(frame) is None or connection.peer_closed():
            raise Finished("a request could not be taken")
        self._session.link.now = connection.heard + connection.wall
        if connection.client.pending():
            self._note_unread(2)  # it went on without the answer
        self._session.gate.refuse_late(frame)

    async def _lease(self) -> None:
        identity = identity_of(self._connection)
        with trio.move_on_after(self._config.upstream_request_timeout_ms / 1000):
            lane = await self._lanes.lease(identity)
            member = self._keeper.join(identity, self._connection, self._connection.client, self._opened_at)
            member.moved(self._connection.node_id)
            member.pipelined(self._together)
            self._session.lease(lane, member)
            return
        raise Finished("no broker gives a producer id")
