"""The brokers' word on whether prepared members can still be committed (``kproxy.txn.member_votes`` has the rules)."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.txn.member_votes import members_to_ask, refuse_expiring, told_expiry_ms
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.view import IdView
    from kproxy.txn.view_values import Joined

_AT_A_TIME: Final = 32


class Votes:
    """Asks the coordinators of the members' ids."""

    def __init__(self, cluster: Cluster, patience_s: float, now_ms: Callable[[str], Awaitable[float]]) -> None:
        """``patience_s``: how long a response is waited for. ``now_ms``: the brokers' time, for a transactional id."""
        self._now_ms = now_ms
        self._cluster = cluster
        self._patience_s = patience_s

    async def check(self, view: "IdView", also: DecisionScope) -> None:
        """TxnError (TRANSACTION_ABORTABLE) if a member to be committed is lost, or may be before it is ended."""
        asked = members_to_ask(view, also)
        if not asked:
            return
        tells = await self._tells()
        limit, errors = trio.Semaphore(_AT_A_TIME), list[TxnError]()
        async with trio.open_nursery() as nursery:
            for joined in asked:
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
        if tells:
            requests = BrokerRequests(self._cluster, transaction.transactional_id, self._patience_s)
            until_ms = told_expiry_ms(joined, await requests.describe())
        refuse_expiring(joined, until_ms, await self._now_ms(main))
