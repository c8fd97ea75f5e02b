"""Warns of members that are prepared, and that the broker will abort because nobody has decided them."""

from collections.abc import Callable
from typing import Final

from kproxy.txn.ids import Producer
from kproxy.txn.procedures.outside import Counters, PacedLog, Report

_SWEEP_SECONDS: Final = 1.0
#: The last part of its time, in which a member is warned of.
_NEAR: Final = 0.25


class Deadlines:
    """Checks all of them once a second, if there are any."""

    def __init__(self, log: PacedLog, stats: Counters, now_ms: Callable[[], float], report: Report) -> None:
        """``stats.prepared_until`` is kept. ``now_ms``: by the brokers' clocks, by which members expire."""
        self._log = log
        self._stats = stats
        self._now_ms = now_ms
        self._report = report
        self._warned: set[Producer] = set()

    async def run(self) -> None:
        """Looks again and again, for ever."""
        while True:
            self.look()
            await self._log.pause(_SWEEP_SECONDS)

    def look(self) -> None:
        """Notes which is the next, and warns once of each that is near."""
        now_ms, first, near = self._now_ms(), None, set[Producer]()
        for view in self._log.views.unsettled():
            for part in view.prepared:
                joined = view.members.get(part)
                if joined is None or joined.broker_transaction is None or (until_ms := joined.expires_ms) is None:
                    continue
                first = until_ms if first is None else min(first, until_ms)
                left_ms = until_ms - now_ms
                if left_ms < _NEAR * joined.broker_transaction.timeout_ms:
                    near.add(part)
                    self._warn(view.transactional_id, part, joined.name, left_ms)
        self._stats.prepared_until = first / 1000 if first is not None else None
        self._warned &= near

    def _warn(self, transactional_id: str, part: Producer, member: str, left_ms: float) -> None:
        if part in self._warned:
            return
        self._warned.add(part)
        why = "a prepared member is undecided, and the broker will abort it soon: commit or abort it"
        self._report("warning", why, transactional_id, member=member, left_ms=max(0, int(left_ms)))
