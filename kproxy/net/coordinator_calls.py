"""Requests that the broker of a client's port does not decide: for a group's coordinator, or for kproxy itself."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from kproxy.codec.messages import Message, response_class
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.kept_repairs import KeptRepairs
from kproxy.proxy.commands import AskCoordinator
from kproxy.proxy.coordinator_requests import (
    AbortRequest,
    ApplicationCommit,
    BeforeOffsetChange,
    BeforeOffsetFetch,
    CoordinatorAnswer,
    GroupRequest,
    ImplicitProduce,
    TransactionalProduce,
    TransactionRequest,
)
from kproxy.proxy.kept_calls import RepairRequest

if TYPE_CHECKING:
    from kproxy.net.txn.transaction_api import TransactionApi
    from kproxy.net.txn.waits import Groups


class CoordinatorCalls:
    """The coordinator calls of one connection.

    Those of a transaction run one after another, in the order in which they arrived, as a broker handles the requests
    of a connection one by one. A Produce lets the next one begin when its batches have their place in the order; other
    calls when they are done. Plain commits of offsets do the same, and an OffsetFetch runs after the commits sent
    before it.
    """

    def __init__(
        self,
        cluster: Cluster,
        api: "TransactionApi | None",
        groups: "Groups | None" = None,
        repairs: KeptRepairs | None = None,
    ) -> None:
        """``api``: kproxy's own coordinator, if transactions are decided here; ``groups``: its log, for offsets.

        ``repairs``: of errors about the numbers of kept producers; None: there are none.
        """
        self._repairs = repairs
        self._cluster = cluster
        self._api = api
        self._last = trio.Event()
        self._last.set()
        self._groups = groups
        self._last_commit = self._last

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records that the client's connection has ended; ``received_all``: the client surely has every response."""
        if self._api is not None:
            self._api.closed(connection, received_all=received_all)

    @property
    def turn(self) -> EndOfTurn:
        """The process's."""
        assert self._api is not None
        return self._api.turn

    def begin(self, command: AskCoordinator, answered: Callable[[CoordinatorAnswer], None], *, is_alone: bool) -> bool:
        """Takes a Produce whose batches can have their place in the order now; else nothing is done, and it is False.

        ``answered`` is called with its response; it must not raise. ``is_alone``: it is sent at once, since no other
        request that came with it could go to the broker in the same one.
        """
        ask, api = command.ask, self._api
        if api is None or not isinstance(ask, TransactionalProduce | ImplicitProduce) or not self._last.is_set():
            return False
        version = command.exchange.client_version
        if not is_alone:
            return api.produce_at_once(ask, version, answered)
        with api.turn.shortened():
            return api.produce_at_once(ask, version, answered)

    def queue(self, command: AskCoordinator) -> Callable[[], Awaitable[CoordinatorAnswer | None]]:
        """Runs a request; its place in the order is that of this call. Gives None if there is no response."""
        ask, version = command.ask, command.exchange.client_version
        if isinstance(ask, GroupRequest):
            upstream = command.exchange.upstream_version
            return partial(self._ask_group, ask.group_id, ask.request, upstream)
        if isinstance(ask, BeforeOffsetFetch):
            return partial(self._before_fetch, ask, self._last_commit)
        if isinstance(ask, BeforeOffsetChange):
            earlier, self._last_commit = self._last_commit, trio.Event()
            return partial(self._before_change, ask, earlier, self._last_commit)
        if isinstance(ask, ApplicationCommit):
            assert self._api is not None
            self._last_commit = trio.Event()
            return self._api.committed(ask, self._last_commit)
        if isinstance(ask, AbortRequest):
            assert self._api is not None
            return partial(self._api.abort, ask)
        if isinstance(ask, RepairRequest):
            assert self._repairs is not None
            return self._repairs.queue(ask)
        before, self._last = self._last, trio.Event()
        if isinstance(ask, ImplicitProduce):
            assert self._api is not None
            return self._api.captured(ask, version, before, self._last)
        return partial(self._transact, ask, version, before, self._last)

    async def _ask_group(self, group_id: str, request: Message, version: int) -> Message | None:
        answer, versions = response_class(request.API_KEY), (version, version)
        try:
            return await self._cluster.coordinators.ask(group_id, request, answer, versions)
        except (OSError, RemoteProtocolError):
            return None

    async def _transact(
        self, ask: TransactionRequest | TransactionalProduce, version: int, before: trio.Event, accepted: trio.Event
    ) -> CoordinatorAnswer | None:
        assert self._api is not None
        try:
            if not before.is_set():  # to look is not to wait, which would cost a turn
                await before.wait()
            return await self._api.answer(ask, version, accepted.set)
        finally:
            accepted.set()

    async def _before_fetch(self, ask: BeforeOffsetFetch, earlier: trio.Event) -> Message:
        assert self._groups is not None
        await earlier.wait()
        return await self._groups.before_fetch(ask)

    async def _before_change(self, ask: BeforeOffsetChange, earlier: trio.Event, done: trio.Event) -> Message:
        assert self._groups is not None
        try:
            await earlier.wait()
            return await self._groups.before_change(ask)
        finally:
            done.set()  # its request is sent before another task runs: there is no checkpoint in between
