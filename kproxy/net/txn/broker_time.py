"""The time by the brokers' clocks, which alone decide when they abort a transaction.

This machine's clock may be an hour wrong. A response to an append to the transaction log carries the broker's time.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.network import Network
from kproxy.net.txn.log_appender import AppendError
from kproxy.txn.txn_error import TxnError

#: For so long this process's own clock continues from a broker's time: it stops while a machine sleeps.
_FRESH_SECONDS: Final = 1.0
_UNKNOWN: Final = -1


class BrokerTime:
    """Milliseconds since the epoch, by the brokers' clocks."""

    def __init__(self, network: Network) -> None:
        """``network``: its wall clock counts until a broker has told its time."""
        self._network = network
        #: trio's clock when the append was sent, and the broker's time after it.
        self._told: tuple[float, int] | None = None

    def observe(self, sent_at: float, append_time_ms: int) -> None:
        """Records the response to an append that was sent then (trio's clock); -1: the broker told no time."""
        if append_time_ms != _UNKNOWN:
            self._told = sent_at, append_time_ms

    @property
    def likely_ms(self) -> float:
        """The brokers' time by the last response, however long ago that was."""
        if self._told is None:
            return self._network.wall() * 1000
        sent_at, time_ms = self._told
        return time_ms + (trio.current_time() - sent_at) * 1000

    async def now_ms(self, append: Callable[[], Awaitable[object]]) -> float:
        """The brokers' time, or somewhat later; ``append`` appends to the log if no answer came just now. TxnError."""
        if self._told is None or trio.current_time() > self._told[0] + _FRESH_SECONDS:
            try:
                await append()
            except (AppendError, OSError, RemoteProtocolError) as error:
                raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the brokers' time: {error}") from error
        return self.likely_ms
