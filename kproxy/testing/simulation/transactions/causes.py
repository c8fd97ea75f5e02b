"""What a client may be told that can only be closed: an error for which there was a cause, by what befell the run."""

from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.testing.simulation.transactions.history import TransactionHistory

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_UNKNOWN: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING})


class Causes:
    """Of one process of a transactional producer."""

    def __init__(self, history: TransactionHistory, transactional_id: str, instance: int, timeout_ms: int) -> None:
        """``instance``: the kproxy that it asks."""
        self._history = history
        self._mine = transactional_id
        self._instance = instance
        self._timeout = timeout_ms / 1000
        #: By trio's clock: since when its kproxy knows it, and when its open transaction began.
        self._since = trio.current_time()
        self._began: float | None = None
        self._was_overdue = False

    def initializes(self) -> None:
        """It asks for a producer id."""
        self._since, self._began = trio.current_time(), None

    def works(self) -> None:
        """Something is about to be asked of a transaction."""
        if self._began is None:
            self._began = trio.current_time()

    def ended(self) -> None:
        """Its transaction is over."""
        self._look_at_the_time()
        self._began = None

    def _look_at_the_time(self) -> None:
        if self._began is not None and trio.current_time() >= self._began + self._timeout:
            self._was_overdue = True

    def has(self, code: int) -> bool:
        """Whether there was one for an error."""
        history, mine = self._history, self._mine
        if code in _UNKNOWN and (history.ids_expire or mine in history.expired):
            return True
        if code in _FENCED and (mine in history.loose or mine in history.shared):
            return True
        return history.is_native and self._is_lost(code)

    def _is_lost(self, code: int) -> bool:
        """Brokers fence who takes too long; and who goes on at another kproxy than the one that it is known to."""
        self._look_at_the_time()
        if code in _FENCED and (self._was_overdue or self._mine in self._history.expired):
            return True
        crashed = self._history.killed.get(self._instance, -1.0) >= self._since
        return crashed and code in _FENCED | _UNKNOWN
