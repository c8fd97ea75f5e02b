"""Which connections have ended: one question to the kernel for all of them, however many there are."""

import select
from collections.abc import Callable
from typing import TypeAlias

#: Is called with the time, in seconds; also of a connection that is known to have ended.
Ended: TypeAlias = Callable[[float], None]


class EndWatch:
    """Connections whose ends are reported by ``look``, each once.

    The kernel adds a socket to the ready list of an epoll set when a FIN or a reset comes, before anything that the
    peer sends after it. So ``look`` finds all that a poll of each socket would find.
    """

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._watched: dict[int, Ended] = {}
        self._found: list[Ended] = []

    def watch(self, fileno: int, ended: Ended) -> None:
        """Reports the end of an open socket, also if it has ended already. ``forget`` it before it is closed."""
        if self._epoll is None:
            self._epoll = select.epoll()
        self._epoll.register(fileno, select.EPOLLRDHUP)  # EPOLLHUP and EPOLLERR are always reported
        self._watched[fileno] = ended

    def forget(self, fileno: int) -> Ended | None:
        """Watches a socket no more; what was to be called at its end, if that was not reported yet."""
        ended = self._watched.pop(fileno, None)
        if ended is not None and self._epoll is not None:
            self._epoll.unregister(fileno)
        return ended

    def found(self, ended: Ended) -> None:
        """Reports the end of a connection with the next ``look``."""
        self._found.append(ended)

    def look(self, now: float) -> None:
        """Reports the connections that have ended since the last call."""
        while self._epoll is not None and (events := self._epoll.poll(0)):
            self._found += [ended for fileno, _ in events if (ended := self.forget(fileno)) is not None]
        found, self._found = self._found, []
        for ended in found:
            ended(now)
