"""Transactions by hand where brokers coordinate the ids. Their members are decided on kproxy's log (``LogControl``)."""

from collections.abc import Callable
from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import fenced
from kproxy.txn.described import Described, Listing, Outcome
from kproxy.txn.describing import listed
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.batch_decisions import BatchDecision
from kproxy.txn.procedures.log_control import LogControl
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.owner_policy import MANAGED
from kproxy.txn.states import TransactionState
from kproxy.txn.txn_error import TxnError

_BY_HAND: Final = "client"
_MOST_REMEMBERED: Final = 1_000


class BrokerControl:
    """Knows those that were begun here and are open; the broker's own tools list all others."""

    def __init__(
        self, tools: ManagedTools, begun: ManagedTransactions, log: LogControl, is_mine: Callable[[str], bool]
    ) -> None:
        """``begun`` is what connections ask where a client's requests go.

        ``log``: for what this instance has not begun. ``is_mine``: whether the broker decides an id.
        """
        self._tools = tools
        self._begun = begun
        self._log = log
        self._is_mine = is_mine
        #: Commits with a batch id, by transactional id: the batch id and the answer. A repeated commit changes nothing.
        self._committed: dict[str, tuple[str, Described]] = {}

    async def begin(self, transactional_id: str, client_id: str | None, timeout_ms: int) -> Described:
        if not client_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, f"say whose transaction {transactional_id} is to be by client_id")
        return self._open(await self._begun.begin(transactional_id, client_id, timeout_ms))

    async def initialize(self, transactional_id: str, client_id: str, timeout_ms: int) -> Described:
        """Fences the former owner at the broker, and at kproxy's log that of the id's members."""
        await self._begun.end_own(transactional_id)
        await self._tools.requests.init_producer_id(transactional_id, timeout_ms, None, client_id, MANAGED)
        return await self._log.take(transactional_id, client_id, timeout_ms)

    async def commit(self, asked: BatchDecision) -> Described:
        """Commits what is open here; with the batch id of the last commit it is that one's success again.

        PRODUCER_FENCED if the transaction that is open is not the owner's.
        """
        name = asked.transactional_id
        capture, told = self._begun.named(name), self._answered(name, asked.batch_id)
        if capture is None and told is None:
            return await self._log.commit(asked)
        _refuse_parts(name, asked.members or asked.abort_others)
        if told is not None:
            if capture is not None and asked.owner == capture.request.client:  # of another try of the batch
                await self._end(capture, asked.owner, committed=False)
            return told
        assert capture is not None
        done = await self._end(capture, asked.owner, committed=True)
        if asked.batch_id is not None:
            if len(self._committed) >= _MOST_REMEMBERED:
                self._committed.pop(next(iter(self._committed)))
            self._committed[name] = (asked.batch_id, done)
        return done

    def _answered(self, transactional_id: str, batch_id: str | None) -> Described | None:
        """The response to the last commit of an id, if that was this one."""
        before, told = self._committed.get(transactional_id, (None, None))
        return told if batch_id is not None and batch_id == before else None

    async def abort(self, asked: BatchDecision) -> Described:
        """Aborts what is open here; PRODUCER_FENCED as of ``commit``."""
        capture = self._begun.named(asked.transactional_id)
        if capture is None:
            return await self._log.abort(asked)
        _refuse_parts(asked.transactional_id, asked.members or asked.abort_others)
        return await self._end(capture, asked.owner, committed=False)

    async def _end(self, capture: ManagedTransaction, owner: Producer | None, *, committed: bool) -> Described:
        if owner not in (None, capture.request.client):
            raise fenced(capture.request.client)
        with self._begun.ending(capture):
            await (capture.commit() if committed else capture.abort())
        outcome = Outcome(committed, _BY_HAND, self._tools.time.wall_ms())
        state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        return self._open(capture)._replace(state=state.value, started_ms=None, last=outcome)

    async def prepare(self, transactional_id: str, owner: Producer, batch_id: str | None) -> Described:
        """The broker has no such state. TxnError (INVALID_REQUEST)."""
        raise _alone(transactional_id)

    async def describe(self, transactional_id: str) -> Described:
        capture = self._begun.named(transactional_id)
        return self._open(capture) if capture is not None else await self._log.describe(transactional_id)

    async def list(self) -> Listing:
        """All that are open here."""
        mine = (capture for capture in self._begun if self._is_mine(capture.transactional_id))
        return Listing(listed(self._open(capture)) for capture in mine)

    def _open(self, capture: ManagedTransaction) -> Described:
        producer_id, epoch = capture.request.client
        return Described(
            transactional_id=capture.transactional_id,
            state=TransactionState.ONGOING.value,
            client_id=capture.client_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            started_ms=capture.began_ms,
            timeout_ms=capture.timeout_ms,
            partitions=(),
            groups=(),
            parts=(),
            instance_id=self._tools.instance_id,
            last=None,
        )


def _refuse_parts(transactional_id: str, asked: object) -> None:
    if asked:
        raise _alone(transactional_id)


def _alone(transactional_id: str) -> TxnError:
    """The error where what the id itself has open is to be prepared, or decided with members: the broker can't."""
    why = (
        f"the broker decides what {transactional_id} itself has open, alone: "
        "begin a member for what is decided with others"
    )
    return TxnError(ErrorCode.INVALID_REQUEST, why)
