"""All ways into a transaction for clients that know nothing of them, as connections ask for them."""

from typing import Final, NamedTuple

from kproxy.txn.ids import TXN_CLIENTS
from kproxy.txn.no_transaction import NoTransaction
from kproxy.txn.procedures.application_transactions import ApplicationTransactions
from kproxy.txn.procedures.applications_by_rule import ApplicationsByRule
from kproxy.txn.procedures.captured import ImplicitTransaction
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.single_requests import SingleRequests


class Parties(NamedTuple):
    """The clients that take part in open transactions."""

    #: Serial numbers of connections.
    connections: set[int]
    #: Clients for which one was begun by hand; they may not have come yet.
    client_ids: set[str]


_NOWHERE: Final = NoTransaction()


class ImplicitTransactions:
    """Transactions that were begun by hand come first, then the rules of the configuration."""

    def __init__(self, begun: ManagedTransactions, applications: ApplicationsByRule, requests: SingleRequests) -> None:
        """``requests``: whose Produce requests are transactions, each of its own."""
        self.begun = begun
        self._applications = applications
        self._requests = requests
        self._has_rules = applications.some or requests.some

    @property
    def watches(self) -> bool:
        """Whether there may be applications whose OffsetCommits are the ends of transactions."""
        return self._applications.some

    def of(self, client_id: str) -> ImplicitTransaction | None:
        capture: ImplicitTransaction | None = self.begun.of(client_id)
        if capture is None and self._has_rules:
            capture = self._by_rule(client_id)
        return _NOWHERE if capture is None and client_id.startswith(TXN_CLIENTS) else capture

    def _by_rule(self, client_id: str) -> ImplicitTransaction | None:
        application = self._applications.of_producer(client_id) if self._applications.some else None
        current = application.current if application is not None else None
        return current or self._requests.of(client_id)

    def of_consumer(self, client_id: str, group_id: str) -> ApplicationTransactions | None:
        return self._applications.of_consumer(client_id, group_id)

    def parties(self) -> Parties:
        """The clients that take part in what is open."""
        begun = self.begun.open()
        connections = self._applications.parties().union(*(capture.parties for capture in begun))
        return Parties(connections, {capture.client_id for capture in begun})

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records the end of a connection; ``received_all``: its client surely has every response."""
        self.begun.closed(connection, received_all=received_all)
        self._applications.closed(connection, received_all=received_all)
