"""The pauses between attempts to ask a broker."""

from random import Random
from typing import Final

import trio

from kproxy.config.broker_options import BrokerOptions

#: Of all pauses; a simulation seeds it.
CHANCE: Final = Random()


class Backoff:
    """``retry_backoff_ms``, then twice as long each time, at most ``retry_backoff_max_ms``.

    Half of it or more is waited, at random. Otherwise instances that lose a broker at the same time would all ask the
    next one at the same times.
    """

    def __init__(self, config: BrokerOptions) -> None:
        """The first pause is the shortest."""
        self._config = config
        self.reset()

    def reset(self) -> None:
        """The next pause is the shortest again."""
        self._next_ms = self._config.retry_backoff_ms

    async def pause(self) -> None:
        """Waits before the next attempt."""
        await trio.sleep(self.next())

    def next(self) -> float:
        """The pause before the next attempt, in seconds, for callers that do something else meanwhile."""
        pause_ms = self._next_ms
        self._next_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)
        return pause_ms * (1 + CHANCE.random()) / 2000
