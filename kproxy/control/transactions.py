"""What the control API asks of the transactions' service."""

from collections.abc import Sequence
from typing import Protocol

from kproxy.txn.described import Described, Listed


class TransactionControl(Protocol):
    """Transactions for clients that know nothing of them; every method raises ``kproxy.txn.errors.TxnError``.

    What a client with a given client.id produces through this kproxy between ``begin`` and the decision is one
    transaction. A method that is cancelled may have done its work all the same.
    """

    async def begin(self, *, client_id: str | None, transactional_id: str | None, timeout_ms: int) -> Described:
        """Opens a transaction; at least one name is given.

        The transactional id is by default "kproxy-" and the client.id; the client.id the one that the id had last.
        """
        ...

    async def commit(
        self, transactional_id: str, *, batch_id: str | None = None, members: Sequence[str] = ()
    ) -> Described:
        """Commits it with what the named members wrote; a batch id that was committed before changes nothing."""
        ...

    async def abort(self, transactional_id: str, *, members: Sequence[str] = ()) -> Described:
        """Aborts it."""
        ...

    async def prepare(self, transactional_id: str) -> Described:
        """Makes it durable: no time-out and no crash decides it, only a later commit or abort."""
        ...

    async def list(self) -> Sequence[Listed]:
        """Every transactional id that the log knows."""
        ...

    async def describe(self, transactional_id: str) -> Described:
        """One of them; TRANSACTIONAL_ID_NOT_FOUND if it is not known."""
        ...
