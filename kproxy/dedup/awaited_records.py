"""Records that were refused unsent, in the order in which their client repeats them: nothing overtakes them.

librdkafka keeps its queue in the order in which the application produced: it sends what was refused before anything
that it has not sent yet, whatever it had in flight. So a request that begins with another record was sent before its
client had read the refusal. If it were accepted, its records would be in the log before those that were refused. It is
refused as well, and its records are awaited after the others.

No request is refused for ever: its records are awaited, and its retry is accepted. A client that has given up records
(``message.timeout.ms``) continues with later ones, which shows that the earlier ones do not come any more.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from kproxy.dedup.digest import Digest

#: So many records are awaited on a partition: 800 KB. If more are refused, order is not kept any more.
MOST_RECORDS: Final = 100_000
_UNSIGNED: Final = (1 << 64) - 1


class AwaitedRecords:
    """Of one producer, on one partition."""

    def __init__(self) -> None:
        """None yet."""
        #: 64 bits of each.
        self._records = array("Q")
        #: When a request was last refused, in seconds.
        self.since = 0.0

    def __len__(self) -> int:
        """How many records are awaited."""
        return len(self._records)

    def refuse(self, records: Sequence[Digest], now: float) -> bool:
        """Takes the records of a request that is refused at ``now`` (seconds); False if there were too many to keep.

        Those of a retry that is refused again keep their places.
        """
        self.since = now
        hashes = array("Q", _hashes(records))
        at = self._place_of(hashes)
        known = self._run(at, hashes) if at is not None else 0
        if known == len(hashes):
            return True
        if at is not None and at + known < len(self._records):
            known = 0  # another request that begins with an equal record
        if len(self._records) + len(hashes) - known > MOST_RECORDS:
            del self._records[:]
            return False
        self._records += hashes[known:]
        return True

    def admits(self, records: Sequence[Digest]) -> bool:
        """Whether a request with these records repeats the first of those that still come: they are not awaited then.

        Records before them were given up.
        """
        hashes = array("Q", _hashes(records))
        at = self._place_of(hashes)
        if at is None:
            return not self._records
        del self._records[: at + self._run(at, hashes)]
        return True

    def _place_of(self, hashes: "array[int]") -> int | None:
        try:
            return self._records.index(hashes[0])
        except (ValueError, IndexError):
            return None

    def _run(self, at: int, hashes: "array[int]") -> int:
        """How many of these records are awaited one after another from a place on."""
        known = self._records[at : at + len(hashes)]
        if known == hashes[: len(known)]:
            return len(known)
        return next(number for number, pair in enumerate(zip(known, hashes, strict=False)) if pair[0] != pair[1])


def _hashes(records: Iterable[Digest]) -> Iterable[int]:
    return (int.from_bytes(record.content[:8], "big") ^ (record.timestamp_ms & _UNSIGNED) for record in records)
