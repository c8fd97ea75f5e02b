"""Transactions by hand (``kproxy.control.transaction_control.TransactionControl``), by where an id's are decided."""

from typing import Protocol

from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import Described, Listing
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.batch_decisions import BatchDecision
from kproxy.txn.txn_error import TxnError


class HandControl(Protocol):
    """The transactions by hand where kproxy's log decides the ids (``LogControl``), or the broker (``BrokerControl``).

    All methods raise TxnError.
    """

    async def begin(self, transactional_id: str, client_id: str | None, timeout_ms: int) -> Described:
        """Opens a transaction here for a client; None: the one that the id had last."""
        ...

    async def initialize(self, transactional_id: str, client_id: str, timeout_ms: int) -> Described:
        """Fences the former owner; what is open and not prepared is aborted."""
        ...

    async def commit(self, asked: BatchDecision) -> Described:
        """Commits what the owner has open here, and what was prepared of the batch."""
        ...

    async def abort(self, asked: BatchDecision) -> Described:
        """Aborts what is open, and what was prepared of the batch."""
        ...

    async def prepare(self, transactional_id: str, owner: Producer, batch_id: str | None) -> Described:
        """Leaves what the owner has open here to a later decision."""
        ...

    async def describe(self, transactional_id: str) -> Described:
        """All that is known of an id; TRANSACTIONAL_ID_NOT_FOUND if nothing is."""
        ...

    async def list(self) -> Listing:
        """All ids that are known."""
        ...


def not_in_log(transactional_id: str) -> TxnError:
    """The error for an id that kproxy's log decides, and does not know."""
    return TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"the log does not know {transactional_id}")


def not_here(transactional_id: str) -> TxnError:
    """The error for an id whose coordinator is the broker, and that has nothing open at this kproxy."""
    why = f"{transactional_id} is not open at this kproxy; its home is the broker: kafka-transactions.sh describe"
    return TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, why)
