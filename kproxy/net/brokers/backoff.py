"""The pauses between attempts to ask a broker."""

import trio

from kproxy.config.broker_options import BrokerOptions


class Backoff:
    """``retry_backoff_ms``, then twice as long each time, at most ``retry_backoff_max_ms``."""

    def __init__(self, config: BrokerOptions) -> None:
        """The first pause is the shortest."""
        self._config = config
        self.reset()

    def reset(self) -> None:
        """The next pause is the shortest again."""
        self._next_ms = self._config.retry_backoff_ms

    async def pause(self) -> None:
        """Waits before the next attempt."""
        pause_ms = self._next_ms
        self._next_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)
        await trio.sleep(pause_ms / 1000)
