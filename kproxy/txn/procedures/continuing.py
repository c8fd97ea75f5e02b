"""A client of ``broker-fenced`` continues after a restart of kproxy, by the epoch that the log has for it.

``verification.explorer.broken_continuing`` leaves each rule out, and the explorer shows the flaw.
"""

from typing import Final

from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsResponseTransactionState as Described,
)
from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_protocol import OVER, BrokerCoordinator, Protocol
from kproxy.txn.procedures.kept_epoch import KeptEpoch
from kproxy.txn.procedures.outside import Time
from kproxy.txn.states import TransactionState
from kproxy.txn.stored_epochs import LastEnd, StoredEpoch
from kproxy.txn.txn_error import TxnError

_COMPLETE: Final = frozenset(
    state.value
    for state in (
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
)
#: Ends write their markers within some ms, if the partitions are available.
_END_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.02


async def continue_client(
    stored: StoredEpoch, requests: BrokerCoordinator, protocol: Protocol, kept: KeptEpoch, time: Time
) -> tuple[Producer, LastEnd]:
    """The client's next epoch at the broker, and what it has to be told. TxnError.

    INVALID_PRODUCER_ID_MAPPING if the broker knows nothing of it, PRODUCER_FENCED if another producer has the id.
    """
    described = await _settled(requests, time)
    if described is None or described.producer_id != stored.upstream.producer_id:
        raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the broker has forgotten the client of this kproxy")
    upstream, is_open = stored.upstream, described.transaction_state == TransactionState.ONGOING.value
    if described.producer_epoch > upstream.epoch + (0 if is_open else 1):
        # nothing is asked then: the broker would abort what the other producer has open
        raise TxnError(ErrorCode.PRODUCER_FENCED, "another producer has the id")
    seen = _outcome(described, stored)
    if is_open:
        upstream, seen = await _abort(requests, protocol, upstream, seen)
    # Twice: what a killed kproxy has sent under an epoch that the log lacks is late after that. Before each the log has
    # the outcome, which InitProducerId makes the broker forget; and the broker says whether nobody else had the id.
    for _ in range(2):
        await kept.recorded(upstream, seen)
        upstream = await requests.init(stored.timeout_ms, upstream)
    return upstream, seen


async def _settled(requests: BrokerCoordinator, time: Time) -> Described | None:
    """The coordinator's description of the id once no end is in flight; None if it has none. TxnError."""
    if not await requests.describes():
        return None
    with time.scope(_END_SECONDS):
        while True:
            described = await requests.describe()
            if described is None or described.transaction_state in _COMPLETE:
                return described
            await time.sleep(_PAUSE_SECONDS)
    raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is ending the last transaction")


def _outcome(described: Described, stored: StoredEpoch) -> LastEnd:
    """The end of the client's last transaction, as far as the broker and the log say."""
    state = described.transaction_state
    if state == TransactionState.COMPLETE_COMMIT.value:
        return LastEnd.COMMITTED
    if state == TransactionState.ONGOING.value:
        return LastEnd.LOST
    if described.producer_epoch != stored.upstream.epoch:
        # raised since: by the next InitProducerId of a kproxy that had recorded the outcome, or by an abort
        is_known = state == TransactionState.EMPTY.value and stored.last is not LastEnd.NONE
        return stored.last if is_known else LastEnd.LOST
    if state == TransactionState.COMPLETE_ABORT.value and stored.last is not LastEnd.ABORTED:
        return LastEnd.LOST
    return stored.last


async def _abort(
    requests: BrokerCoordinator, protocol: Protocol, upstream: Producer, seen: LastEnd
) -> tuple[Producer, LastEnd]:
    """Ends what is open; what the broker says to that decides: a commit that comes late may be first."""
    try:
        return await requests.end(upstream, protocol, committed=False) or upstream, seen
    except TxnError as error:
        if error.error_code is ErrorCode.INVALID_TXN_STATE:
            return upstream, LastEnd.COMMITTED
        if error.error_code not in OVER:
            raise
        return upstream, seen
