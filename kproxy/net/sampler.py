"""Rates: counters of the process and of each connection, looked at every two seconds."""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from kproxy.net.connection import Connection
from kproxy.proxy.facts import History, Traffic
from kproxy.proxy.stats import Stats

INTERVAL_SECONDS: Final = 2.0
#: Three minutes of history.
_MOST_SAMPLES: Final = 90
_NOTHING: Final = Traffic()


class _Seen(NamedTuple):
    """Counters of a connection when it was looked at last, and its rates until then."""

    received: int
    written: int
    answered: int
    rate: Traffic


_UNSEEN: Final = _Seen(0, 0, 0, _NOTHING)


class Sampler:
    """Holds a few figures for each open connection, and the totals of the last minutes."""

    def __init__(self, stats: Stats) -> None:
        """``stats`` has the totals."""
        self._stats = stats
        self._seen: dict[Connection, _Seen] = {}
        self._at: float | None = None
        self._totals = (0, 0, 0)
        self._history: deque[Traffic] = deque(maxlen=_MOST_SAMPLES)

    def sample(self, connections: Iterable[Connection], now: float) -> None:
        """Takes note of all counters at ``now`` (seconds)."""
        totals = self._read_totals()
        passed = INTERVAL_SECONDS if self._at is None else max(now - self._at, 1e-3)
        self._seen = {connection: self._look(connection, passed) for connection in connections}
        if self._at is not None:
            self._history.append(_rate(totals, self._totals, passed))
        self._at, self._totals = now, totals

    def _read_totals(self) -> tuple[int, int, int]:
        stats = self._stats
        return stats.client_bytes_in, stats.client_bytes_out, sum(stat.count for stat in stats.requests.values())

    def _look(self, connection: Connection, passed: float) -> _Seen:
        old = self._seen.get(connection, _UNSEEN)
        counters = connection.received, connection.written, connection.session.link.answered
        return _Seen(*counters, _NOTHING if counters == old[:3] else _rate(counters, old[:3], passed))

    @property
    def total(self) -> Traffic:
        """The rates of the whole process."""
        return self._history[-1] if self._history else _NOTHING

    def rate(self, connection: Connection) -> Traffic:
        """The rates of one connection; nothing of one that was not there when it was looked at last."""
        return self._seen.get(connection, _UNSEEN).rate

    def history(self) -> History:
        """What is known of the last minutes."""
        return History(
            interval_ms=int(INTERVAL_SECONDS * 1000),
            bytes_in=[round(row.bytes_in, 1) for row in self._history],
            bytes_out=[round(row.bytes_out, 1) for row in self._history],
            requests=[round(row.requests, 1) for row in self._history],
        )


def _rate(now: tuple[int, int, int], before: tuple[int, int, int], passed: float) -> Traffic:
    return Traffic(*(round((new - old) / passed, 1) for new, old in zip(now, before, strict=True)))
