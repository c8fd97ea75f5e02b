"""The time for which entries of the lane log count, by the brokers' clocks, and when an instance writes its own again.

An entry counts for ``period_ms`` after it was appended. Its instance writes it again long before. One that can't does
not use its lanes to the last moment: a client whose connection ends then may retry elsewhere for ``retry.window.ms``,
and until then the entry counts. ::

    0        1        2        3        4        5        6        7   sevenths of the period
    | appended                          | renewed| ends   | not    | does not count
                                                            used
"""

from collections.abc import Mapping
from typing import Final

#: An instance that can't renew an entry stops using the lane such a part of the period before the entry expires:
#: ``retry.window.ms`` and ``delivery.timeout.ms`` are at most so long.
SPARE_PART: Final = 7
_RENEWED_FROM: Final = 4 / 7
_RENEWED_UNTIL: Final = 5 / 7
_USED_UNTIL: Final = 6 / 7
#: How often an instance looks what is due, in each period.
_LOOKS: Final = 56


class Retention:
    """The retention of entries, by the settings of one topic."""

    def __init__(self, option_ms: int) -> None:
        """``option_ms``: how long this instance's entries count at most, whatever the topic is like."""
        self._option_ms = self.period_ms = option_ms
        #: How long entries count for readers; None: for ever.
        self._expires_ms: int | None = None
        #: The newest time of a broker's that is known, in ms since 1970, and when it came, by this process's clock.
        self._newest_ms = self._seen_at = 0.0

    def adopt(self, settings: Mapping[str, str | None]) -> None:
        """Takes the topic's settings, as far as they are known.

        Entries expire where the broker deletes and stamps them: a topic that was created before this rule keeps them
        until somebody alters it, and by then no instance may run that does not write its entries again.
        """
        policy, text = (settings.get("cleanup.policy") or "").split(","), settings.get("retention.ms") or ""
        deleted_ms = int(text) if "delete" in policy and text.isdigit() else None
        self.period_ms = self._option_ms if deleted_ms is None else min(self._option_ms, deleted_ms)
        is_stamped = settings.get("message.timestamp.type") == "LogAppendTime"
        self._expires_ms = deleted_ms if is_stamped else None

    @property
    def expires(self) -> bool:
        """Whether entries expire."""
        return self._expires_ms is not None

    def saw(self, time_ms: int, now: float) -> None:
        """Records the time of a broker; ``now``: of this process's own clock, in seconds."""
        if time_ms > self.brokers_ms(now):
            self._newest_ms, self._seen_at = time_ms, now

    def oldest_ms(self, now: float, wall_ms: float) -> int:
        """Entries that were appended before this time do not count; -1: all do.

        No clock of an instance makes it too late: it follows what the brokers said last, and ``wall_ms``, this
        machine's time, if that is earlier.
        """
        if self._expires_ms is None:
            return -1
        return max(-1, int(min(self.brokers_ms(now), wall_ms)) - self._expires_ms)

    def brokers_ms(self, now: float) -> float:
        """The brokers' time, in ms since 1970, or an earlier one."""
        return self._newest_ms + (now - self._seen_at) * 1000

    @property
    def pause_s(self) -> float:
        """The time from one look at what is due to the next."""
        return self.period_ms / _LOOKS / 1000

    def renewed_after_s(self, chance: float) -> float:
        """The time when an entry is written again; ``chance`` in [0, 1) spreads instances of one age."""
        return (_RENEWED_FROM + (_RENEWED_UNTIL - _RENEWED_FROM) * chance) * self.period_ms / 1000

    @property
    def used_for_s(self) -> float:
        """The time for which a lane may be used after its entry was put, without a look between."""
        return _USED_UNTIL * self.period_ms / 1000 - self.pause_s
