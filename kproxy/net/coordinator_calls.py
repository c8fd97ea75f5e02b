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
    from kproxy.net.txn.service import Transactions
    from kproxy.net.txn.waits import LoggedGroups


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
        transactions: "Transactions | None",
        groups: "LoggedGroups | None" = None,
        repairs: KeptRepairs | None = None,
    ) -> None:
        """``transactions``: None if none is decided here; ``groups``: kproxy's log, for offsets.

        ``repairs``: of errors about the numbers of kept producers; None: there are none.
        """
        self._repairs = repairs
        self._cluster = cluster
        self._transactions = transactions
        self._last = trio.Event()
        self._last.set()
        self._groups = groups
        self._last_commit = self._last

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records that the client's connection has ended; ``received_all``: the client surely has every response."""
        if self._transactions is not None:
            self._transactions.closed(connection, received_all=received_all)

    @property
    def turn(self) -> EndOfTurn:
        """The process's."""
        assert self._transactions is not None
        return self._transactions.turn

    def begin(self, command: AskCoordinator, answered: Callable[[CoordinatorAnswer], None], *, is_alone: bool) -> bool:
        """Takes a Produce whose batches can have their place in the order now; else nothing is done, and it is False.

        ``answered`` is called with its response; it must not raise. ``is_alone``: it is sent at once, since no other
        request that came with it could go to the broker in the same one.
        """
        ask, transactions = command.ask, self._transactions
        if (
            transactions is None
            or not isinstance(ask, TransactionalProduce | ImplicitProduce)
            or not self._last.is_set()
        ):
            return False
        version = command.exchange.client_version
        if not is_alone:
            return transactions.produce_answers.take_at_once(ask, version, answered)
        with transactions.turn.shortened():
            return transactions.produce_answers.take_at_once(ask, version, answered)

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
        if isinstance(ask, RepairRequest):
            assert self._repairs is not None
            return self._repairs.queue(ask)
        transactions = self._transactions
        assert transactions is not None
        if isinstance(ask, ApplicationCommit):
            self._last_commit = trio.Event()
            return transactions.application_commits.begin(ask, self._last_commit)
        if isinstance(ask, AbortRequest):
            return partial(transactions.coordinator.answer_abort, ask)
        before, self._last = self._last, trio.Event()
        if isinstance(ask, ImplicitProduce):
            return transactions.produce_answers.capture(ask, version, before, self._last)
        return partial(self._transact, transactions, ask, version, before, self._last)

    async def _ask_group(self, group_id: str, request: Message, version: int) -> Message | None:
        answer, versions = response_class(request.API_KEY), (version, version)
        try:
            return await self._cluster.coordinators.ask(group_id, request, answer, versions)
        except (OSError, RemoteProtocolError):
            return None

    @staticmethod
    async def _transact(
        transactions: "Transactions",
        ask: TransactionRequest | TransactionalProduce,
        version: int,
        before: trio.Event,
        accepted: trio.Event,
    ) -> CoordinatorAnswer | None:
        try:
            if not before.is_set():  # to look is not to wait, which would cost a turn
                await before.wait()
            if isinstance(ask, TransactionalProduce):
                return await transactions.produce_answers.answer(ask, version, accepted.set)
            return await transactions.coordinator.answer(ask, version)
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
