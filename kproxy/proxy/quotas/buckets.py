"""Token buckets: what was used too much has to be waited for, but never longer than a bound."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

#: A limit may be used up for so many seconds at once.
BURST_SECONDS: Final = 1.0
#: Buckets kept; about 3 MB.
_MOST_BUCKETS: Final = 10_000

_Key = TypeVar("_Key", bound=Hashable)


class Bucket:
    """Tokens that come at a rate, and may be owed."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        """Full. ``rate``: tokens for each second; ``now``: seconds."""
        self._rate = rate
        self._at = now
        self._tokens = rate * BURST_SECONDS

    def take(self, amount: float, rate: float, now: float, longest: float) -> float:
        """Takes tokens and says for how many seconds nothing more should be taken, ``longest`` at most.

        What can't be waited for in that time is forgiven, so that one huge request is not paid for by many.
        """
        self._refill(rate, now)
        self._tokens = max(self._tokens - amount, -rate * longest)
        return max(-self._tokens / rate, 0.0)

    def is_full(self, now: float) -> bool:
        """Whether it says no more than a new one would."""
        self._refill(self._rate, now)
        return self._tokens >= self._rate * BURST_SECONDS

    def _refill(self, rate: float, now: float) -> None:
        passed = max(now - self._at, 0.0)
        self._tokens = min(self._tokens + passed * self._rate, rate * BURST_SECONDS)
        self._rate, self._at = rate, max(now, self._at)


class Buckets(Generic[_Key]):
    """A bucket for each key that has used something of late."""

    def __init__(self, longest: float) -> None:
        """``longest``: the longest wait, in seconds."""
        self._longest = longest
        self._buckets: dict[_Key, Bucket] = {}

    def take(self, key: _Key, amount: float, rate: float, now: float) -> float:
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _MOST_BUCKETS:
                self._trim(now)
            bucket = self._buckets[key] = Bucket(rate, now)
        return bucket.take(amount, rate, now, self._longest)

    def __len__(self) -> int:
        return len(self._buckets)

    def _trim(self, now: float) -> None:
        """Forgets those that are full; if that is not enough, the older half."""
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if not bucket.is_full(now)}
        if len(self._buckets) >= _MOST_BUCKETS:
            self._buckets = dict(list(self._buckets.items())[_MOST_BUCKETS // 2 :])
