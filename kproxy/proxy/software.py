"""The names of clients' software: which are connected, counted so that random names can't flood the metrics."""

from collections import Counter
from typing import Final

from kproxy.dedup.origin import Software

_LABEL_LIMIT: Final = 128
_MOST_KINDS: Final = 200


UNKNOWN: Final = Software("unknown", "")
"""Of clients that have not said, or are too old to."""
_OTHER: Final = Software("(other)", "")


class SoftwareCounts:
    """Open connections by software; kinds beyond a limit are counted as one."""

    def __init__(self, most_kinds: int = _MOST_KINDS) -> None:
        """Nobody is connected."""
        self._most_kinds = most_kinds
        self.open: Counter[Software] = Counter()

    def came(self, name: str = "", version: str = "") -> Software:
        """Counts a connection; returns as what, which ``left`` wants to be told."""
        software = Software(name[:_LABEL_LIMIT], version[:_LABEL_LIMIT]) if name else UNKNOWN
        if software not in self.open and len(self.open) >= self._most_kinds:
            software = _OTHER
        self.open[software] += 1
        return software

    def left(self, software: Software) -> None:
        """Counts a connection no more."""
        self.open[software] -= 1
        if not self.open[software]:
            del self.open[software]
