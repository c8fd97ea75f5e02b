"""The end of a kproxy that others wait for: accepted requests are answered, open transactions are decided, then all
closes.

Connections end in this order. A connection that takes part in a transaction open here stays until the transaction is
decided: elsewhere it could only be aborted. All others take no further request, and end after their last response. What
a client begins after that goes to the instance that serves it next.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import trio

from kproxy.net.producer_identity import identity_of

if TYPE_CHECKING:
    from kproxy.dedup.identity import Identity
    from kproxy.net.connection import Connection
    from kproxy.net.txn.service import Transactions

_POLL_SECONDS = 0.02


class Left(NamedTuple):
    """What is not through."""

    connections: int
    #: Requests without a response.
    requests: int
    transactions: int
    #: Requests of transactions that continue, whether or not their clients are connected.
    decisions: int


class Draining:
    """Brings connections and transactions to their ends."""

    def __init__(self, connections: Collection["Connection"], transactions: "Transactions | None") -> None:
        """``connections`` are those that live; the collection changes while they end."""
        self._connections = connections
        self._transactions = transactions
        self._producers: set[Identity] = set()
        self._client_ids: set[str] = set()

    async def run(self) -> None:
        """Returns when nothing is left that anybody could bring to its end."""
        if self._transactions is not None:
            self._transactions.leave()
        while True:
            self._look()
            if not (self._connections or self._decided_later()):
                return
            await trio.sleep(_POLL_SECONDS)

    def _decided_later(self) -> bool:
        """Whether there is still to be decided what needs no connection of a client."""
        transactions = self._transactions
        return transactions is not None and bool(transactions.jobs or transactions.parties().client_ids)

    def left(self) -> Left:
        """What is not through now."""
        transactions = self._transactions
        return Left(
            connections=len(self._connections),
            requests=sum(connection.owed for connection in self._connections),
            transactions=transactions.open if transactions is not None else 0,
            decisions=transactions.jobs if transactions is not None else 0,
        )

    def _look(self) -> None:
        """Ends all connections that no open transaction needs."""
        self._find_staying()
        for connection in list(self._connections):
            connection.answered = self._answered
            self._end_or_keep(connection)

    def _answered(self, connection: "Connection") -> None:
        """Checks a connection that was answered: it may have begun a transaction, or ended one."""
        if identity_of(connection) in self._producers:
            self._look()
        elif self._transactions is not None and self._transactions.takes_part(connection.session.client.connection):
            self._producers.add(identity_of(connection))
            connection.stay()

    def _end_or_keep(self, connection: "Connection") -> None:
        if identity_of(connection) in self._producers or connection.session.client.client_id in self._client_ids:
            connection.stay()
        else:
            connection.drain()

    def _find_staying(self) -> None:
        """The clients whose connections all stay: those that take part in a transaction, or are about to."""
        if self._transactions is None:
            return
        parties, self._client_ids = self._transactions.parties()
        self._producers = {
            identity_of(connection)
            for connection in self._connections
            if connection.dispatch.calls_open or connection.session.client.connection in parties
        }
