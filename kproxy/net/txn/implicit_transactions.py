"""All ways into a transaction for clients that know nothing of them, as connections ask for them."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.application_transactions import ApplicationsByRule, ApplicationTransactions
from kproxy.net.txn.managed_transactions import ManagedTransactions
from kproxy.net.txn.single_requests import SingleRequests
from kproxy.proxy.implicit_produce import ImplicitTransaction
from kproxy.txn.ids import TXN_CLIENTS
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError


class Parties(NamedTuple):
    """The clients that take part in open transactions."""

    #: Serial numbers of connections.
    connections: set[int]
    #: Clients for which one was begun by hand; they may not have come yet.
    client_ids: set[str]


class _NoTransaction:
    """Refuses the requests of a client that writes in transactions only, while none is open for it."""

    def took(self, connection: int, *, answered: bool) -> None:
        """Nothing depends on it."""

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> None:
        """Nothing of it is written."""

    async def write(
        self, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """Refuses all."""
        why = f"no transaction is open here for this client.id, and none that begins {TXN_CLIENTS} writes without"
        raise TxnError(ErrorCode.INVALID_TXN_STATE, why)

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        """Never: ``write`` refuses them."""
        return False

    def write_at_once(self, batches: Sequence[ClientBatch], written: Callable[[Sequence[Written]], None]) -> None:
        """Never called: nothing is taken at once."""

    def failed(self, why: str) -> None:
        """Nothing is open that could be doomed."""

    def done(self) -> None:
        """Nothing waits for it."""


_NOWHERE: Final = _NoTransaction()


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
