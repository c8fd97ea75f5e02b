"""Whether members that are prepared can still be committed: the brokers may have aborted what they keep.

This is asked before the decision is written: after it every member must end as decided, or the transaction is torn.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope, prepared_parts
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.view import IdView
    from kproxy.txn.view_values import Joined

_AT_A_TIME: Final = 32
#: So long, or a tenth of its time-out if that is less, a member must have left: to be told of the decision.
_MARGIN_MS: Final = 10_000
_OPEN: Final = "Ongoing"


class Votes:
    """Asks the coordinators of the members' ids."""

    def __init__(self, cluster: Cluster, patience_s: float, now_ms: Callable[[str], Awaitable[float]]) -> None:
        """``patience_s``: how long a response is waited for. ``now_ms``: the brokers' time, for a transactional id."""
        self._now_ms = now_ms
        self._cluster = cluster
        self._patience_s = patience_s

    async def check(self, view: "IdView", also: DecisionScope) -> None:
        """TxnError (TRANSACTION_ABORTABLE) if a member to be committed is lost, or may be before it is ended."""
        asked = [
            joined
            for record in prepared_parts(view, also)
            if record.topics and (joined := view.members.get(Producer(record.producer_id, record.epoch))) is not None
        ]
        at_broker = [joined for joined in asked if joined.broker_transaction is not None]
        if not at_broker:
            return
        tells = await self._tells()
        limit, errors = trio.Semaphore(_AT_A_TIME), list[TxnError]()
        async with trio.open_nursery() as nursery:
            for joined in at_broker:
                await limit.acquire()
                nursery.start_soon(self._check, view.transactional_id, joined, tells, limit, errors)
        if errors:
            raise errors[0]

    async def _tells(self) -> bool:
        """Whether brokers describe transactions (KIP-664). TxnError."""
        try:
            broker = self._cluster.any_broker()
            return broker is None or ApiKey.DESCRIBE_TRANSACTIONS in await self._cluster.versions(broker)
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    async def _check(
        self, main: str, joined: "Joined", tells: bool, limit: trio.Semaphore, errors: list[TxnError]
    ) -> None:
        try:
            await self._check_one(main, joined, tells)
        except TxnError as error:
            errors.append(error)
        finally:
            limit.release()

    async def _check_one(self, main: str, joined: "Joined", tells: bool) -> None:
        transaction, until_ms = joined.broker_transaction, joined.expires_ms
        assert transaction is not None
        assert until_ms is not None
        name = transaction.transactional_id
        if tells:
            told = await BrokerRequests(self._cluster, name, self._patience_s).describe()
            state = told.transaction_state if told is not None else "unknown"
            if told is None or state != _OPEN or (told.producer_id, told.producer_epoch) != transaction.producer:
                raise _lost(joined, f"the broker has ended {name}, where it wrote (it is {state})")
            until_ms = told.transaction_start_time_ms + told.transaction_timeout_ms
        left_ms = until_ms - await self._now_ms(main)
        if left_ms < min(_MARGIN_MS, transaction.timeout_ms / 10):
            raise _lost(joined, f"the broker aborts {name}, where it wrote, in {left_ms:.0f} ms")


def _lost(joined: "Joined", why: str) -> TxnError:
    member = f"member {joined.name}" if joined.name else "the owner's part"
    return TxnError(ErrorCode.TRANSACTION_ABORTABLE, f"{member} can't be committed any more: {why}")
