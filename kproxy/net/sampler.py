"""Rates: counters of the process and of each connection, looked at every two seconds."""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from itertools import zip_longest
from typing import Final, TypeAlias

from kproxy.codec.messages import ApiKey
from kproxy.net.connection import Connection
from kproxy.proxy.durations import quantile_ms
from kproxy.proxy.facts import History, Traffic
from kproxy.proxy.stats import Stats

INTERVAL_SECONDS: Final = 2.0
#: Three minutes of history.
_MOST_SAMPLES: Final = 90
#: One minute of refusals.
_REFUSED_SAMPLES: Final = 30
_NOTHING: Final = Traffic()
#: Bytes in, bytes out, requests answered.
_Counters: TypeAlias = tuple[int, int, int]
_ZERO: Final[_Counters] = (0, 0, 0)


class Sampler:
    """Holds the counters of each open connection twice, and the totals of the last minutes.

    All clients wait while it looks, so rates are worked out when somebody asks for them.
    """

    def __init__(self, stats: Stats) -> None:
        """``stats`` has the totals."""
        self._stats = stats
        self._before: Mapping[Connection, _Counters] = {}
        self._seen: Mapping[Connection, _Counters] = {}
        self._at: float | None = None
        self._passed = INTERVAL_SECONDS
        self._totals = _ZERO
        self._history: deque[Traffic] = deque(maxlen=_MOST_SAMPLES)
        #: How many Produce requests took how long until then, by bucket.
        self._produced: deque[list[int]] = deque(maxlen=_MOST_SAMPLES)
        self._refused: deque[Mapping[str, int]] = deque([{}], maxlen=_REFUSED_SAMPLES)
        #: Of each legacy client, its requests at the last sample, and when they were one more than before.
        self._legacy: dict[Hashable, tuple[int, float]] = {}

    def sample(self, connections: Iterable[Connection], now: float) -> None:
        """Samples all counters at ``now`` (seconds)."""
        self._before = self._seen
        self._seen = {each: (each.received, each.written, each.session.answered) for each in connections}
        totals = self._read_totals()
        if self._at is not None:
            self._passed = max(now - self._at, 1e-3)
            self._history.append(_rate(totals, self._totals, self._passed))
        self._at, self._totals = now, totals
        self._produced.append(self._read_produced())
        self._refused.append(dict(self._stats.clients.connections_refused))
        for client, count in self._stats.apis.legacy_counts().items():
            self._legacy[client] = count, self.last_legacy(client, count, now)

    def last_legacy(self, client: Hashable, count: int, now: float) -> float:
        """When a client that has sent ``count`` legacy requests until ``now`` sent the last of them, to an interval."""
        known, at = self._legacy.get(client, (0, now))
        return at if known == count else now

    def refused(self) -> dict[str, int]:
        """Connections of clients that were refused in the last minute, by reason."""
        first, last = self._refused[0], self._stats.clients.connections_refused
        return {reason: count - first.get(reason, 0) for reason, count in last.items() if count > first.get(reason, 0)}

    def _read_produced(self) -> list[int]:
        versions = [stat.buckets for (key, _), stat in self._stats.apis.requests.items() if key == ApiKey.PRODUCE]
        return [sum(column) for column in zip(*versions, strict=True)]

    def _read_totals(self) -> _Counters:
        stats = self._stats
        requests = sum(stat.count for stat in stats.apis.requests.values())
        return stats.clients.bytes_in, stats.clients.bytes_out, requests

    @property
    def total(self) -> Traffic:
        """The rates of the whole process."""
        return self._history[-1] if self._history else _NOTHING

    def rate(self, connection: Connection) -> Traffic:
        """The rates of one connection; nothing of one that was not there when it was looked at last."""
        seen, before = self._seen.get(connection, _ZERO), self._before.get(connection, _ZERO)
        return _NOTHING if seen == before else _rate(seen, before, self._passed)

    def answered(self, connection: Connection) -> int:
        """Requests of a connection that were answered in the last interval."""
        return self._seen.get(connection, _ZERO)[2] - self._before.get(connection, _ZERO)[2]

    def history(self) -> History:
        """What is known of the last minutes."""
        first, last = (self._produced[0], self._read_produced()) if self._produced else ([], [])
        buckets = [new - old for new, old in zip_longest(last, first, fillvalue=0)]
        return History(
            interval_ms=int(INTERVAL_SECONDS * 1000),
            bytes_in=[row.bytes_in for row in self._history],
            bytes_out=[row.bytes_out for row in self._history],
            requests=[row.requests for row in self._history],
            produce_p50_ms=quantile_ms(buckets, 0.5),
            produce_p99_ms=quantile_ms(buckets, 0.99),
        )


def _rate(now: _Counters, before: _Counters, passed: float) -> Traffic:
    return Traffic(*(round((new - old) / passed, 1) for new, old in zip(now, before, strict=True)))
