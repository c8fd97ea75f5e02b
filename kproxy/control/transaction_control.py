"""What the control API asks of the transactions' service."""

from collections.abc import Sequence
from typing import Protocol

from kproxy.txn.described import Described, Listing, OwnerId


class TransactionControl(Protocol):
    """Transactions for clients that know nothing of them; every method raises ``kproxy.txn.txn_error.TxnError``.

    What a client with a given client.id produces through this kproxy between ``begin`` and the decision is one
    transaction. A method that is cancelled may have done its work all the same.
    """

    async def begin(self, *, client_id: str | None, transactional_id: str | None, timeout_ms: int) -> Described:
        """Opens a transaction; at least one name is given.

        The transactional id is by default "kproxy-" and the client.id; the client.id the one that the id had last.
        """
        ...

    async def initialize(self, transactional_id: str, *, client_id: str, timeout_ms: int) -> Described:
        """Initializes the id: its former owner is fenced, and a transaction that is open and not prepared is aborted.

        ``Described.owner`` names the new owner, and ``member_home`` who keeps its members' data from readers if these
        prefer the broker. ``client_id`` is the client that the id is for; it may be empty.
        """
        ...

    async def commit(
        self,
        transactional_id: str,
        *,
        batch_id: str | None = None,
        members: Sequence[str] = (),
        owner: OwnerId | None = None,
        abort_others: bool = False,
    ) -> Described:
        """Commits what is open here, and what the owner and the named members have prepared anywhere, at once.

        A batch id that was committed before changes nothing. PRODUCER_FENCED if ``owner`` is not the id's newest;
        INVALID_REQUEST if a member has prepared nothing. ``abort_others``: then all else of the id is aborted.
        """
        ...

    async def abort(
        self, transactional_id: str, *, owner: OwnerId, members: Sequence[str] = (), abort_others: bool = False
    ) -> Described:
        """Aborts what is open, and what the owner and the named members have prepared; errors as of ``commit``.

        ``abort_others``: all else of the id, too; that there is nothing is a success then.
        """
        ...

    async def prepare(self, transactional_id: str, *, owner: OwnerId, batch_id: str | None = None) -> Described:
        """Makes it durable: no time-out and no crash decides it, only a later commit or abort.

        PRODUCER_FENCED if ``owner`` is not the id's newest. ``batch_id``: a commit under another one leaves it out.
        """
        ...

    async def begin_member(
        self,
        transactional_id: str,
        member: str,
        *,
        client_id: str,
        owner: OwnerId | None = None,
        timeout_ms: int | None = None,
        prefer_broker: bool = False,
    ) -> Described:
        """What the client writes through this kproxy from now on is the member's part of the transaction.

        Names are never used twice. PRODUCER_FENCED if ``owner`` is not the id's newest. ``timeout_ms``: by default the
        id's. ``prefer_broker``: where ``transactions.home`` is ``auto``, the part is a transaction of the broker's if
        the brokers serve them, so that readers without kproxy see committed data alone.
        """
        ...

    async def prepare_member(self, transactional_id: str, member: str, *, records: int | None = None) -> Described:
        """Makes a member's part durable, at the instance where it began.

        TRANSACTION_ABORTABLE: it is aborted. If it is prepared already that is a success. ``records``: how many the
        client has written; it is aborted if kproxy received another number of them.
        """
        ...

    async def abort_member(self, transactional_id: str, member: str) -> Described:
        """Gives a member's part up, at the instance where it began."""
        ...

    async def reject(self, producer_id: int) -> None:
        """Has all data under a producer id aborted that readers wait for and the log does not know.

        INVALID_TXN_STATE if the log knows it, RESOURCE_NOT_FOUND if no reader of this kproxy has met it.
        """
        ...

    async def list(self) -> Listing:
        """Every transactional id that the log knows, within a second or two: as it was read last if it cannot be read.

        COORDINATOR_NOT_AVAILABLE if it was not read yet.
        """
        ...

    async def describe(self, transactional_id: str) -> Described:
        """One of them, as ``list``; TRANSACTIONAL_ID_NOT_FOUND if it is not known."""
        ...
