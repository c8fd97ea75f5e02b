"""The entries of this instance that have to stay in the lane log: each is written again before it expires."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import trio

from kproxy.dedup.lane_retention import Retention
from kproxy.net.brokers.backoff import CHANCE


@dataclass(slots=True)
class _Kept:
    value: bytes
    #: When it was put last, by trio's clock; ``written`` is set once that is durable.
    put_at: float
    written: trio.Event
    #: When the last one was put that is durable: it was appended after that.
    durable_at: float
    #: Of the time until it is written again.
    chance: float


class Renewals:
    """By key, what was put last, so that nothing older can follow it."""

    def __init__(self, retention: Retention, put: Callable[[bytes, bytes], trio.Event]) -> None:
        """``put`` takes an entry in the order of its calls; the event is set when it is durable."""
        self._retention = retention
        self._put = put
        self._kept: dict[bytes, _Kept] = {}

    def keep(self, key: bytes, value: bytes, written: trio.Event) -> None:
        """Keeps an entry that was put just now, instead of the one before."""
        self._kept[key] = _Kept(value, trio.current_time(), written, inf, CHANCE.random())

    def inherit(self, key: bytes, value: bytes, age_s: float) -> None:
        """Keeps an entry that is in the log for so long."""
        written, at = trio.Event(), trio.current_time() - age_s
        written.set()
        self._kept[key] = _Kept(value, at, written, at, CHANCE.random())

    def drop(self, key: bytes) -> None:
        """Lets an entry expire."""
        self._kept.pop(key, None)

    def renew(self, *, is_due: bool) -> None:
        """Puts the entries that are due, or all; not those that are in flight."""
        now = trio.current_time()
        for key, kept in self._kept.items():
            if not kept.written.is_set():
                continue
            kept.durable_at = kept.put_at
            if not is_due or now >= kept.put_at + self._retention.renewed_after_s(kept.chance):
                kept.put_at, kept.chance = now, CHANCE.random()
                kept.written = self._put(key, kept.value)

    def usable_until(self, key: bytes) -> float:
        """Until when (trio's clock) others surely see the entry for long enough; inf if it is not kept."""
        kept = self._kept.get(key)
        if kept is None:
            return inf
        if kept.written.is_set():
            kept.durable_at = kept.put_at
        return kept.durable_at + self._retention.used_for_s
