"""Records that were refused unsent, in the order in which their client repeats them: nothing overtakes them.

librdkafka keeps its queue in the order in which the application produced: it sends what was refused before anything
that it has not sent yet, whatever it had in flight. So a request that begins with another record was sent before its
client had read the refusal. If it were accepted, its records would be in the log before those that were refused. It is
refused as well, and its records are awaited after the others.

No request is refused for ever: its records are awaited, and its retry is accepted. A client that has given up records
(``message.timeout.ms``) repeats later ones without them. That shows it if the later ones were refused last: responses
are read in their order, so the client has read that the earlier ones were refused, too. Otherwise the request may
have been in flight while they were refused again.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from kproxy.dedup.digest import Digest

#: So many records are remembered on a partition: 2.4 MB. Others that are refused meanwhile are accepted when none is
#: awaited any more.
MOST_RECORDS: Final = 100_000
_RECORD_BYTES: Final = 24
_UNSIGNED: Final = (1 << 64) - 1


class AwaitedRecords:
    """The refused records of one producer and partition that are still to come, in their order."""

    def __init__(self) -> None:
        """None yet."""
        #: 64 bits of each.
        self._records = array("Q")
        #: The number of the refusal of each that was the last.
        self._refusals = array("Q")
        self._last_refusal = 0
        #: When the request of each was sent, among all that were (``ProducerConnection.sent_at``); never falls.
        self._sent = array("d")
        #: When a request was last refused whose records are remembered, or a retry was accepted; in seconds.
        self.since = 0.0

    @property
    def size(self) -> int:
        """How many bytes of memory these take."""
        return len(self._records) * _RECORD_BYTES

    def __len__(self) -> int:
        """How many records are awaited."""
        return len(self._records)

    def refuse(self, records: Sequence[Digest], now: float, sent: int = 0) -> None:
        """Takes the records of a request that is refused at ``now`` (seconds).

        ``sent``: its place among all requests. What was sent later may have been refused before, while this one waited.
        Those of a retry that is refused again keep their places. Records before them in that request were accepted, and
        only their responses are missing.
        """
        hashes, following = _hashes(records), 0
        self._last_refusal += 1
        while hashes and (found := self._first_in(hashes, following)) is not None:
            self.since = now
            number, at = found
            run = self._run(at, hashes[number:])
            self._refusals[at : at + run] = array("Q", [self._last_refusal]) * run
            hashes, following = hashes[number + run :], at + run
        room = MOST_RECORDS - len(self._records)
        if hashes and room > 0:
            self.since = now
            count, at = min(room, len(hashes)), bisect_right(self._sent, sent)
            self._records[at:at] = hashes[:count]
            self._refusals[at:at] = array("Q", [self._last_refusal]) * count
            self._sent[at:at] = array("d", [sent]) * count

    def admits(self, records: Sequence[Digest], now: float, sent: float = inf) -> bool:
        """Whether a request with these records, one or more, repeats at ``now`` (seconds) the first that still comes.

        Or was ``sent`` before those that still come (``refuse``). Records that it repeats are not awaited any more, nor
        those before or between them, which their client has given up.
        """
        hashes, following = _hashes(records), 0
        while hashes and following < bisect_right(self._sent, sent):
            found = self._first_in(hashes, following)
            if found is None:
                return False  # a new record, and others before it still come
            number, at = found
            if at > following and max(self._refusals[following:at]) >= self._refusals[at]:
                return False
            run = self._run(at, hashes[number:])
            hashes, following = hashes[number + run :], at + run
        self.since = now
        del self._records[:following], self._refusals[:following], self._sent[:following]
        return True

    def _first_in(self, hashes: "array[int]", start: int) -> tuple[int, int] | None:
        """The number of the first of some records that is awaited from ``start`` on, and its place; None if none is.

        They are one part of their client's queue. So this is the first awaited one, or the part begins after that.
        """
        if start == len(self._records):
            return None
        number = _index(hashes, self._records[start])
        if number is not None:
            return number, start
        at = _index(self._records, hashes[0], start)
        return None if at is None else (0, at)

    def _run(self, at: int, hashes: "array[int]") -> int:
        """How many of these records are awaited one after another from a place on; at least one."""
        known = self._records[at : at + len(hashes)]
        if known == hashes[: len(known)]:
            return len(known)
        return next(number for number, pair in enumerate(zip(known, hashes, strict=False)) if pair[0] != pair[1])


def _index(records: "array[int]", record: int, start: int = 0) -> int | None:
    try:
        return records.index(record, start)
    except ValueError:
        return None


def _hashes(records: Iterable[Digest]) -> "array[int]":
    return array(
        "Q", (int.from_bytes(record.content[:8], "big") ^ (record.timestamp_ms & _UNSIGNED) for record in records)
    )
