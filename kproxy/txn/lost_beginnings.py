"""Partitions of the transaction log whose first records were deleted without a snapshot that states them.

kproxy deletes only what a snapshot states, so somebody else did this: ``kafka-delete-records.sh``, a wrong
``retention.ms``. An instance that has read these records writes a snapshot of them at once. Where none does, the other
instances continue with what the log says after a while: an id must not be blocked for ever.
"""

from enum import Enum, auto
from typing import Final

from kproxy.txn.views import Views

#: The time that an instance that has read the records has to state them.
GRACE_SECONDS: Final = 60.0


class Remedy(Enum):
    """The remedy for a partition, now."""

    #: Write a snapshot of what its deleted records said.
    STATE = auto()
    #: Continue without them.
    CONTINUE = auto()


class LostBeginnings:
    """Finds such partitions, and says what is to be done about each."""

    def __init__(self, views: Views) -> None:
        """``views``: what was read of the log."""
        self._views = views
        #: When each such partition was seen first, and which reading of it that was.
        self._seen: dict[int, tuple[float, int]] = {}

    def look(self, partition: int, log_start: int, reading: int, now: float, *, is_read: bool) -> Remedy | None:
        """Looks at a partition, whose first record is at ``log_start``; ``is_read``: all of it has been read.

        ``reading``: how often its reading has begun again; ``now``: in seconds.
        """
        loader = self._views.loader(partition)
        is_covered = loader.is_sure and log_start <= loader.up_to
        if is_covered or not is_read or partition in self._views.foreign:
            self._seen.pop(partition, None)
            return None
        since, seen = self._seen.get(partition, (now, -1))
        if seen != reading:
            self._seen[partition] = now, reading
            return None
        if self._views.knows(partition):
            return Remedy.STATE
        return Remedy.CONTINUE if now >= since + GRACE_SECONDS else None
