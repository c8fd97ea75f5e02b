"""The limit of transactional ids for one principal."""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.txn.id_limit import IdLimit
from kproxy.txn.txn_error import TxnError

log = structlog.get_logger("kproxy.transactions")

#: The time between two searches for ids that have expired.
_SWEEP_SECONDS: Final = 60.0


class IdAdmission:
    """Admits the principals that take an id (``transactional.id.limit``)."""

    def __init__(self, most: int, exists: Callable[[str], bool]) -> None:
        """``most`` ids of one principal; ``exists``: whether somebody has an id."""
        self._most = most
        self._exists = exists
        self._limit = IdLimit(most)

    def admit(self, transactional_id: str, principal: str) -> None:
        """Lets a principal have an id. TxnError (POLICY_VIOLATION) if it has as many as it may have."""
        known = self._exists(transactional_id)
        if self._limit.admits(transactional_id, principal, trio.current_time(), is_known=known):
            return
        if self._limit.is_first_refusal(principal):
            log.warning(
                "a principal has as many transactional ids as it may have: further ones are refused until some expire "
                "(transactional.id.timeout.ms), or transactional.id.limit is raised",
                principal=principal,
                limit=self._most,
            )
        raise TxnError(ErrorCode.POLICY_VIOLATION, f"{principal} has {self._most} transactional ids")

    async def run(self) -> None:
        """Forgets who had the ids that have expired; for ever."""
        while True:
            await trio.sleep(_SWEEP_SECONDS)
            self._limit.sweep(self._exists, trio.current_time())
