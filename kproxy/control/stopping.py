"""Ends kproxy: on a signal, or because another kproxy takes over."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog
import trio

log = structlog.get_logger("kproxy.app")


class Stop:
    """After the first signal kproxy drains; after the second it exits at once."""

    def __init__(self) -> None:
        self.requested = trio.Event()
        self.at_once = trio.Event()
        #: Whether the ports are another process's by now.
        self.handed_over = False

    async def follow(self, signals: AsyncIterator[int], reload: Callable[[], Awaitable[None]]) -> None:
        """Reloads on SIGHUP and stops on all other signals; runs until cancelled."""
        async for signum in signals:
            if signum == signal.SIGHUP:
                await reload()
            elif not self.requested.is_set():
                log.info("stopping", signal=signal.Signals(signum).name)
                self.requested.set()
            else:
                log.warning("second signal: ending at once", signal=signal.Signals(signum).name)
                self.at_once.set()

    def replaced(self) -> None:
        log.info("stopping: another kproxy takes over")
        self.handed_over = True
        self.requested.set()
