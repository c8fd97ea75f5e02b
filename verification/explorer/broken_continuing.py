"""Rules of ``kproxy.txn.procedures.continuing`` and ``kept_epoch`` as they must not be."""

from typing import Any, Final
from unittest.mock import patch

from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.txn.ids import Producer
from kproxy.txn.procedures import continuing
from kproxy.txn.procedures.broker_owner import BrokerOwner
from kproxy.txn.procedures.broker_protocol import Protocol
from kproxy.txn.procedures.kept_epoch import KeptEpoch
from kproxy.txn.states import TransactionState
from kproxy.txn.stored_epochs import LastEnd, StoredEpoch
from kproxy.txn.txn_error import TxnError

_CONTINUE: Final = continuing.continue_client
_OUTCOME: Final = continuing._outcome
_PUT: Final = KeptEpoch.put
_ASK_TO_END: Final = BrokerOwner._ask_to_end


class _Wrapped:
    """Something of the product's with a method or two replaced."""

    def __init__(self, one: Any, **others: Any) -> None:
        self._one = one
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._one, name)


async def asks_for_one_epoch(stored: StoredEpoch, requests: Any, protocol: Protocol, kept: Any, time: Any) -> Any:
    """A successor asks for one epoch."""
    with patch.object(continuing, "range", lambda _: range(1), create=True):
        return await _CONTINUE(stored, requests, protocol, kept, time)


async def trusts_the_broker(stored: StoredEpoch, requests: Any, protocol: Protocol, kept: Any, time: Any) -> Any:
    """Continue in the name of the epoch that the broker has now."""
    described = await requests.describe()
    named = stored.upstream if described is None else Producer(described.producer_id, described.producer_epoch)
    return await _CONTINUE(stored._replace(upstream=named), requests, protocol, kept, time)


async def tells_before(stored: StoredEpoch, requests: Any, protocol: Protocol, kept: Any, time: Any) -> Any:
    """The client hears of the outcome though the broker has not granted the next epoch."""
    seen = LastEnd.NONE

    async def recorded(upstream: Producer, last: LastEnd) -> None:
        nonlocal seen
        seen = last
        await kept.recorded(upstream, last)

    async def init(timeout_ms: int, resumed: Producer) -> Producer:
        try:
            return await requests.init(timeout_ms, resumed)  # type: ignore[no-any-return]  # a producer
        except TxnError:
            if seen is not LastEnd.COMMITTED:
                raise
            return resumed

    others = _Wrapped(requests, init=init), protocol, _Wrapped(kept, recorded=recorded), time
    return await _CONTINUE(stored, *others)  # type: ignore[arg-type]  # wrapped


async def records_once(stored: StoredEpoch, requests: Any, protocol: Protocol, kept: Any, time: Any) -> Any:
    """The epoch after the outcome is not recorded before the next one is asked for."""
    is_recorded = False

    async def recorded(upstream: Producer, last: LastEnd) -> None:
        nonlocal is_recorded
        if not is_recorded:
            is_recorded = True
            await kept.recorded(upstream, last)

    return await _CONTINUE(stored, requests, protocol, _Wrapped(kept, recorded=recorded), time)  # type: ignore[arg-type]


async def aborts_always(stored: StoredEpoch, requests: Any, protocol: Protocol, kept: Any, time: Any) -> Any:
    """Abort what is not open, too."""

    async def recorded(upstream: Producer, last: LastEnd) -> None:
        await kept.recorded(upstream, last)

    described = await requests.describe()
    if described is not None and described.transaction_state != TransactionState.ONGOING.value:
        seen = _OUTCOME(described, stored)
        upstream, seen = await continuing._abort(requests, protocol, stored.upstream, seen)
        for _ in range(2):
            await recorded(upstream, seen)
            upstream = await requests.init(stored.timeout_ms, upstream)
        return upstream, seen
    return await _CONTINUE(stored, requests, protocol, kept, time)


async def takes_all_for_its_own(stored: StoredEpoch, requests: Any, protocol: Protocol, kept: Any, time: Any) -> Any:
    """Take what is open under a later epoch than the recorded one for the client's own."""

    async def describe() -> Any:
        described = await requests.describe()
        if described is not None and described.transaction_state == TransactionState.ONGOING.value:
            described = described.replaced(producer_epoch=stored.upstream.epoch)
        return described

    return await _CONTINUE(stored, _Wrapped(requests, describe=describe), protocol, kept, time)


async def leaves_it_open(_: object, __: object, upstream: Producer, seen: LastEnd) -> tuple[Producer, LastEnd]:
    """Leave what is open: the description is the outcome."""
    return upstream, seen


def ignores_what_is_open(described: Any, stored: StoredEpoch) -> LastEnd:
    """A transaction that was open is nothing that the client has to hear of."""
    return stored.last if described.transaction_state == TransactionState.ONGOING.value else _OUTCOME(described, stored)


def loses_nothing_since(described: Any, stored: StoredEpoch) -> LastEnd:
    """An epoch that was raised since the entry means nothing."""
    found = _OUTCOME(described, stored)
    if found is LastEnd.LOST and described.transaction_state != TransactionState.ONGOING.value:
        is_empty = described.transaction_state == TransactionState.EMPTY.value
        return stored.last or (LastEnd.NONE if is_empty else LastEnd.ABORTED)
    return found


def loses_nothing_unrecorded(described: Any, stored: StoredEpoch) -> LastEnd:
    """An abort that was not recorded means nothing."""
    if described.transaction_state == TransactionState.COMPLETE_ABORT.value:
        stored = stored._replace(last=stored.last or LastEnd.ABORTED)
        if described.producer_epoch == stored.upstream.epoch:
            return stored.last
    return _OUTCOME(described, stored)


async def does_not_wait(self: KeptEpoch, upstream: Producer, last: LastEnd) -> None:
    """An outcome need not be in the log before the next epoch is asked for, if the log is slow."""
    self.put(upstream, last)
    await self.written()


def puts_nothing(self: KeptEpoch, upstream: Producer, last: LastEnd) -> None:
    """An epoch is not recorded when it is received, but the first."""
    if not self._has_entry:
        _PUT(self, upstream, last)


async def records_at_the_end(self: BrokerOwner, transaction: Any, *, committed: bool) -> None:
    """An epoch is recorded before its end alone."""
    _PUT(self._kept, transaction.producer, self._last_end)
    await self._kept.written()
    await _ASK_TO_END(self, transaction, committed=committed)


async def is_denied(
    self: BrokerRequests, producer: Producer, protocol: Protocol, *, committed: bool
) -> Producer | None:
    """A fence in response to a repeated commit is an abort."""
    request = EndTxnRequest(self._name, *producer, committed)
    answer = await self._ask(request, EndTxnResponse, newest=protocol.end, left_open=lambda: None)
    return None if answer.producer_id < 0 else Producer(answer.producer_id, answer.producer_epoch)
