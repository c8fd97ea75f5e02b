"""Whether there was a cause for an error that ends a producer: something that befell it, while that can explain it."""

from collections.abc import Collection
from math import inf
from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from verification.simulation.transactions.history import Asked, TransactionHistory
from verification.simulation.transactions.plan import IDS_EXPIRE_MS

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_UNKNOWN: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING})


class Causes:
    """The causes of errors that one process of a transactional producer may receive."""

    def __init__(
        self,
        history: TransactionHistory,
        transactional_id: str,
        instances: Collection[int],
        timeout_ms: int,
        *,
        second_version: bool = False,
    ) -> None:
        """``instances``: the kproxies that it has asked. ``second_version``: each end raises its epoch (KIP-890)."""
        self._continues = history.continues and not second_version
        self._history = history
        self._mine = transactional_id
        self._instances = instances
        self._timeout = timeout_ms / 1000
        #: By trio's clock: since when its kproxy knows it, since when it has had no transaction, and when one began.
        self._since = self._idle = trio.current_time()
        self._began: float | None = None
        #: When the time-out of the last transaction ended it at the earliest, if it was open for so long, and when a
        #: kproxy of its was killed, so that another one aborts it.
        self._overdue_since = self._left_since = inf
        #: Its id may have expired before an EndTxn that was answered all the same.
        self._was_idle = False
        #: Its own requests for an identity; the last one at the end.
        self._asked: list[Asked] = []

    def initializes(self, asked: Asked, *, again: bool = False) -> None:
        """Records a request for a producer id; ``again``: in the name of its identity, which may have been lost since.

        That is so until ``initialized``.
        """
        self._asked.append(asked)
        self._idle = asked.sent
        if not again:
            self._since = asked.sent
        self._began, self._overdue_since, self._left_since = None, inf, inf
        self._was_idle = False

    def initialized(self) -> None:
        """Records that it has received the identity that it asked for last."""
        self._since = self._asked[-1].sent

    def works(self) -> None:
        """Something is about to be asked of a transaction."""
        if self._began is None:
            self._began, self._overdue_since, self._left_since = trio.current_time(), inf, inf

    def ended(self) -> None:
        """An EndTxn was answered."""
        self._look_at_the_time()
        # an abort of what the time-out has aborted succeeds, though the id was unused since then
        self._was_idle |= self._is_expired(self._overdue_since)
        if self._began is not None:
            self._idle, self._began = trio.current_time(), None

    def _look_at_the_time(self) -> None:
        if self._began is None:
            return
        if trio.current_time() >= self._began + self._timeout:
            self._overdue_since = self._began + self._timeout
        if (killed := self._last_killed()) >= self._began:
            self._left_since = killed

    def _last_killed(self) -> float:
        """The time of the last kill of one of its kproxies."""
        return max(self._history.killed.get(instance, -inf) for instance in self._instances)

    def has(self, code: int) -> bool:
        """Whether there was one for an error."""
        if code in _UNKNOWN and (self._may_have_expired() or self._was_given_up()):
            return True
        # An abort of what was lost with the id succeeds. The next EndTxn, of an empty transaction, finds no state.
        if code == ErrorCode.INVALID_TXN_STATE and self._was_given_up():
            return True
        if code in _FENCED and self._may_be_replaced():
            return True
        return self._history.is_native and self._is_lost(code)

    def _may_be_replaced(self) -> bool:
        """Whether an InitProducerId may have come after its own: another one, or a late copy of its own."""
        return any(
            asked.over >= self._since and (asked not in self._asked or asked.is_stray)
            for asked in self._history.asked.get(self._mine, ())
        )

    def _may_have_expired(self) -> bool:
        """Whether its id was not used for long enough that it expires."""
        history = self._history
        unused_since = min(self._idle, self._overdue_since, self._left_since)
        return history.ids_expire and (self._was_idle or history.jumped or self._is_expired(unused_since))

    @staticmethod
    def _is_expired(unused_since: float) -> bool:
        return trio.current_time() >= unused_since + IDS_EXPIRE_MS / 1000

    def _was_given_up(self) -> bool:
        """Whether the brokers have given up its id since it asked for its identity."""
        return self._history.expired.get(self._mine, -inf) >= self._since

    def _is_lost(self, code: int) -> bool:
        """Brokers fence a producer that takes too long, or that continues at a kproxy that does not know it."""
        self._look_at_the_time()
        if code in _FENCED and (self._overdue_since < inf or self._was_given_up()):
            return True
        if self._continues:
            return False
        crashed = self._last_killed() >= self._since
        return crashed and code in _FENCED | _UNKNOWN
