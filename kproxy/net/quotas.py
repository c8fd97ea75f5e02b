"""Quotas in the shell: applies the limits of ``quotas.file``, and logs and counts throttled clients."""

from kproxy.net.watched_file import WatchedFile
from kproxy.proxy.quotas.meter import Meter, Quotas, Throttle
from kproxy.proxy.quotas.quota_rules import QuotaRules
from kproxy.proxy.refusal_stats import RefusalStats


class QuotaKeeper:
    """What all connections share."""

    def __init__(self, file: WatchedFile[QuotaRules], longest: float, stats: RefusalStats) -> None:
        """The limits of a file; ``longest``: the longest wait, in seconds."""
        #: ``quotas.file``; to be watched.
        self.file = file
        self._stats = stats
        self._quotas = Quotas(file.content, longest, self._throttled)
        file.use = self._use

    def meter(self) -> Meter:
        return Meter(self._quotas)

    def _use(self, rules: QuotaRules) -> None:
        self._quotas.rules = rules

    def _throttled(self, throttle: Throttle) -> None:
        name = throttle.limit.value
        self._stats.throttles[name] = self._stats.throttles.get(name, 0) + 1
        self._stats.throttle_seconds[name] = self._stats.throttle_seconds.get(name, 0.0) + throttle.seconds
