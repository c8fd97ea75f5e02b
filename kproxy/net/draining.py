"""The end of a kproxy that others wait for: what was taken is answered, what was begun is decided, then all is closed.

Connections go in this order. Who takes part in a transaction that is open here stays until it is decided: elsewhere it
could only be aborted. All others take no further request, and end behind their last answer. What a client begins behind
that goes to whoever serves it next.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import trio

from kproxy.dedup.identity import normal_host

if TYPE_CHECKING:
    from kproxy.net.connection import Connection
    from kproxy.net.txn.service import Transactions

_POLL_SECONDS = 0.02


class Left(NamedTuple):
    """What is not through."""

    connections: int
    #: Requests without an answer.
    requests: int
    transactions: int
    #: Requests of transactions that go on, their clients gone or not.
    decisions: int

    @property
    def nothing(self) -> bool:
        """Whether all is."""
        return not any(self)


class Draining:
    """Brings connections and transactions to their ends."""

    def __init__(self, connections: Collection["Connection"], transactions: "Transactions | None") -> None:
        """``connections`` are those that live; the collection changes while they end."""
        self._connections = connections
        self._transactions = transactions

    async def run(self) -> None:
        """Returns when nothing is left."""
        if self._transactions is not None:
            self._transactions.leave()
        while True:
            self._release()
            if self.left().nothing:
                return
            await trio.sleep(_POLL_SECONDS)

    def left(self) -> Left:
        """What is not through now."""
        transactions = self._transactions
        return Left(
            connections=len(self._connections),
            requests=sum(connection.owed for connection in self._connections),
            transactions=transactions.open if transactions is not None else 0,
            decisions=transactions.jobs if transactions is not None else 0,
        )

    def _release(self) -> None:
        """Ends all connections that no open transaction needs; called too when one of those has had an answer."""
        staying = self._staying()
        for connection in list(self._connections):
            if connection in staying:
                connection.answered = self._release
            else:
                connection.answered = None
                connection.drain()

    def _staying(self) -> set["Connection"]:
        """All connections of producers one of whose connections takes part in an open transaction."""
        if self._transactions is None:
            return set()
        parties = self._transactions.parties()
        if not any(parties):
            return set()
        producers = {
            _producer(connection)
            for connection in self._connections
            if connection.session.ctx.connection in parties.connections
        }
        return {
            connection
            for connection in self._connections
            if _producer(connection) in producers or connection.session.ctx.client_id in parties.client_ids
        }


def _producer(connection: "Connection") -> tuple[str, str, str]:
    ctx = connection.session.ctx
    return ctx.principal, ctx.client_id, normal_host(connection.client.peer_host)
