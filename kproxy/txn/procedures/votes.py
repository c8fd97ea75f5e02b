"""The brokers' word on whether prepared members can still be committed (``kproxy.txn.member_votes`` has the rules)."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from kproxy.txn.member_votes import members_to_ask, refuse_expiring, told_expiry_ms
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.broker_protocol import BrokerCoordinator
from kproxy.txn.procedures.outside import Together
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.view import IdView
    from kproxy.txn.view_values import Joined


class Votes:
    """Asks the coordinators of the members' ids."""

    def __init__(
        self,
        requests: Callable[[str], BrokerCoordinator],
        describe: Callable[[], Awaitable[bool]],
        now_ms: Callable[[str], Awaitable[float]],
        together: Together,
    ) -> None:
        """``requests``: to the coordinator of a transactional id of the broker's. ``together`` asks several at once.

        ``describe``: whether brokers describe transactions (KIP-664). TxnError. ``now_ms``: the brokers' time, for a
        transactional id.
        """
        self._requests = requests
        self._describe = describe
        self._now_ms = now_ms
        self._together = together

    async def check(self, view: "IdView", also: DecisionScope) -> None:
        """TxnError (TRANSACTION_ABORTABLE) if a member to be committed is lost, or may be before it is ended."""
        asked = members_to_ask(view, also)
        if not asked:
            return
        tells, errors = await self._describe(), list[TxnError]()
        await self._together([partial(self._check, view.transactional_id, joined, tells, errors) for joined in asked])
        if errors:
            raise errors[0]

    async def _check(self, main: str, joined: "Joined", tells: bool, errors: list[TxnError]) -> None:
        try:
            await self._check_one(main, joined, tells)
        except TxnError as error:
            errors.append(error)

    async def _check_one(self, main: str, joined: "Joined", tells: bool) -> None:
        transaction, until_ms = joined.broker_transaction, joined.expires_ms
        assert transaction is not None
        assert until_ms is not None
        if tells:
            requests = self._requests(transaction.transactional_id)
            until_ms = told_expiry_ms(joined, await requests.describe())
        refuse_expiring(joined, until_ms, await self._now_ms(main))
