"""Requests that are not for the broker behind a client's port: for a group's coordinator, or for kproxy's own."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from kproxy.codec.messages import ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.net.cluster import Cluster
from kproxy.proxy.asks import CapturedAsk, GroupAsk, ProduceAsk, TransactionAsk
from kproxy.proxy.session import Errand

if TYPE_CHECKING:
    from kproxy.net.txn.rpcs import Rpcs

_TRIES = 10
_PAUSE_SECONDS = 0.2
_ELSEWHERE = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class Errands:
    """The errands of one connection.

    Those of a transaction begin one behind another, in the order in which they came, as a broker takes the requests of
    a connection one by one. A Produce makes way once its batches have their place; the others, once they are done.
    """

    def __init__(self, cluster: Cluster, rpcs: "Rpcs | None") -> None:
        """``rpcs``: kproxy's own coordinator, if transactions are decided here."""
        self._cluster = cluster
        self._rpcs = rpcs
        self._last = trio.Event()
        self._last.set()

    def closed(self, connection: int, *, had_all: bool) -> None:
        """Takes note that the client's connection has ended; ``had_all``: it surely has had every answer."""
        if self._rpcs is not None:
            self._rpcs.begun.closed(connection, had_all=had_all)

    def queue(self, errand: Errand) -> Callable[[], Awaitable[Message | None]]:
        """What does an errand, whose place in the order is that of this call; gives None if no answer is to be had."""
        ask, version = errand.ask, errand.exchange.client_version
        if isinstance(ask, GroupAsk):
            return partial(_ask_group, self._cluster, ask, errand.exchange.upstream_version)
        before, self._last = self._last, trio.Event()
        if isinstance(ask, CapturedAsk):
            assert self._rpcs is not None
            return self._rpcs.captured(ask, version, before, self._last)
        return partial(self._transact, ask, version, before, self._last)

    async def _transact(
        self, ask: TransactionAsk | ProduceAsk, version: int, before: trio.Event, accepted: trio.Event
    ) -> Message | None:
        assert self._rpcs is not None
        try:
            await before.wait()
            return await self._rpcs.answer(ask, version, accepted.set)
        finally:
            accepted.set()


async def _ask_group(cluster: Cluster, ask: GroupAsk, version: int) -> Message | None:
    """The coordinator's answer; None if it could not be had after some tries."""
    for attempt in range(_TRIES):
        if attempt:
            await trio.sleep(_PAUSE_SECONDS)
        try:
            broker = await cluster.coordinator(ask.group_id)
            if broker is None:
                continue
            client = await cluster.client(broker.address)
            answer = await client.call(ask.request, version)
        except (OSError, RemoteProtocolError):
            cluster.count_error("errand")
            continue
        if not _errors(answer) & _ELSEWHERE:
            return answer
    return None


def _errors(answer: Message) -> set[int]:
    topics = getattr(answer, "topics", [])
    return {getattr(answer, "error_code", 0)} | {row.error_code for topic in topics for row in topic.partitions}
