"""Transactions by hand that the brokers decide: the part of ``ControlService`` for ids that brokers coordinate."""

from collections.abc import Sequence
from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.coordinator import Coordinator
from kproxy.txn.claims import fenced
from kproxy.txn.described import Described, Listed, Outcome
from kproxy.txn.describing import listed
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.owner_policy import MANAGED
from kproxy.txn.states import TransactionState
from kproxy.txn.txn_error import TxnError

_BY_HAND: Final = "client"
_MOST_REMEMBERED: Final = 1_000


class BrokerControl:
    """Knows those that were begun here and are open; the broker's own tools list all others."""

    def __init__(self, coordinator: Coordinator, begun: ManagedTransactions, cluster: Cluster) -> None:
        """``begun`` is what connections ask where a client's requests go."""
        self._coordinator = coordinator
        self._begun = begun
        self._network = cluster.network
        #: Commits with a batch id, by transactional id: the batch id and the answer. A repeated commit changes nothing.
        self._committed: dict[str, tuple[str, Described]] = {}

    def has(self, transactional_id: str) -> bool:
        """Whether the broker decides the transactions of an id."""
        return self._coordinator.is_at_broker(transactional_id)

    def is_open(self, transactional_id: str) -> bool:
        """Whether an id has a transaction of the broker's open here."""
        return self.has(transactional_id) and self._begun.named(transactional_id) is not None

    def was_committed(self, transactional_id: str, batch_id: str | None) -> bool:
        """Whether that was the last commit of an id here."""
        return batch_id is not None and self._committed.get(transactional_id, (None,))[0] == batch_id

    async def initialize(self, transactional_id: str, client_id: str, timeout_ms: int) -> None:
        """Fences the owner of an id at the broker, and has what is open aborted. TxnError."""
        await self._coordinator.init_producer_id(transactional_id, timeout_ms, None, client_id, MANAGED)

    async def begin(self, transactional_id: str, client_id: str | None, timeout_ms: int) -> Described:
        """Begins a transaction (``TransactionControl.begin``). TxnError."""
        if not client_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, f"say whose transaction {transactional_id} is to be by client_id")
        return self._open(await self._begun.begin(transactional_id, client_id, timeout_ms))

    async def commit(self, transactional_id: str, batch_id: str | None, owner: Producer | None = None) -> Described:
        """Commits what is open here; with the batch id of the last commit it is that one's success again. TxnError.

        ``owner``: as ``begin`` returned it; PRODUCER_FENCED if the transaction that is open is another one's.
        """
        before, told = self._committed.get(transactional_id, (None, None))
        if told is not None and batch_id == before:
            capture = self._begun.named(transactional_id)
            if capture is not None and owner == capture.request.client:  # of another try of the batch
                await self._end(transactional_id, owner, committed=False)
            return told
        done = await self._end(transactional_id, owner, committed=True)
        if batch_id is not None:
            if len(self._committed) >= _MOST_REMEMBERED:
                self._committed.pop(next(iter(self._committed)))
            self._committed[transactional_id] = (batch_id, done)
        return done

    async def abort(self, transactional_id: str, owner: Producer | None = None) -> Described:
        """Aborts what is open here. TxnError; ``owner`` as of ``commit``."""
        return await self._end(transactional_id, owner, committed=False)

    async def _end(self, transactional_id: str, owner: Producer | None, *, committed: bool) -> Described:
        capture = self._found(transactional_id)
        if owner not in (None, capture.request.client):
            raise fenced(capture.request.client)
        with self._begun.ending(capture):
            await (capture.commit() if committed else capture.abort())
        outcome = Outcome(committed, _BY_HAND, int(self._network.wall() * 1000))
        state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        return self._open(capture)._replace(state=state.value, started_ms=None, last=outcome)

    def describe(self, transactional_id: str) -> Described:
        """The transaction that is open here. TxnError (TRANSACTIONAL_ID_NOT_FOUND)."""
        return self._open(self._found(transactional_id))

    def list(self) -> Sequence[Listed]:
        """All that are open here."""
        return [listed(self._open(capture)) for capture in self._begun if self.has(capture.transactional_id)]

    def _found(self, transactional_id: str) -> ManagedTransaction:
        capture = self._begun.named(transactional_id)
        if capture is None:
            raise not_here(transactional_id)
        return capture

    def _open(self, capture: ManagedTransaction) -> Described:
        since = self._network.wall() - (trio.current_time() - capture.since)
        producer_id, epoch = capture.request.client
        return Described(
            transactional_id=capture.transactional_id,
            state=TransactionState.ONGOING.value,
            client_id=capture.client_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            started_ms=int(since * 1000),
            timeout_ms=capture.timeout_ms,
            partitions=(),
            groups=(),
            parts=(),
            instance_id=self._coordinator.instance_id,
            last=None,
        )


def not_here(transactional_id: str) -> TxnError:
    """The response for an id whose coordinator is the broker, and that has nothing open at this kproxy."""
    why = f"{transactional_id} is not open at this kproxy; its home is the broker: kafka-transactions.sh describe"
    return TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, why)
