"""Records that were refused unsent, in the order in which their client repeats them: nothing overtakes them.

librdkafka keeps its queue in the order in which the application produced: it sends what was refused before anything
that it has not sent yet, whatever it had in flight. So a request that begins with another record was sent before its
client had read the refusal. If it were accepted, its records would be in the log before those that were refused. It is
refused as well, and its records are awaited after the others.

No request is refused for ever: its records are awaited, and its retry is accepted. A client that has given up records
(``message.timeout.ms``) repeats later ones without them. That shows it if the later ones were refused last on the same
connection: its responses are read in their order, so the client has read that the earlier ones were refused, too.
Otherwise the request may have been in flight while they were refused again. Of what was refused on another connection
only time shows that the client has read it.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, NamedTuple

from kproxy.dedup.digest import Digest
from kproxy.dedup.origin import ELSEWHERE, Origin
from kproxy.dedup.unconfirmed import PendingProduce

#: So many records are remembered on a partition: 3.2 MB. Others that are refused meanwhile are accepted when none is
#: awaited any more.
MOST_RECORDS: Final = 100_000
_RECORD_BYTES: Final = 32
_UNSIGNED: Final = (1 << 64) - 1
#: Seconds after a response in which a client has read it, and has what was refused in its queue again.
READ_SECONDS: Final = 5.0
#: Connections of which no record is awaited any more are forgotten when there are more than so many.
_FEW_CONNECTIONS: Final = 16


class Refusal(NamedTuple):
    """A response that says that records were refused."""

    #: The connection, and when the request was refused, in seconds.
    origin: Origin = ELSEWHERE
    since: float = 0.0
    #: The response; it may have to wait for others before it.
    answer: PendingProduce | None = None

    def was_read(self, empty_at: float) -> bool:
        """Whether the client had read it before it sent what arrived after ``empty_at``, in seconds."""
        if self.answer is None or not self.answer.position:
            return self.origin.ended and self.since + READ_SECONDS <= empty_at
        return self.answer.at + READ_SECONDS <= empty_at


_UNKNOWN: Final = Refusal()


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
        #: The connection on which each was refused last, as its place in ``_origins``.
        self._on = array("Q")
        #: The connections, each with what was refused on it last.
        self._origins: dict[Origin, int] = {}
        self._told: list[Refusal] = []
        self._most_told = _FEW_CONNECTIONS
        #: When a request was last refused whose records are remembered, or a retry was accepted; in seconds.
        self.since = 0.0

    @property
    def size(self) -> int:
        """The bytes of memory that these take."""
        return len(self._records) * _RECORD_BYTES

    def __len__(self) -> int:
        """The number of records that are awaited."""
        return len(self._records)

    def came_over(self, origin: Origin) -> bool:
        """Whether records were refused on a connection, so that their retries may be there, untaken yet."""
        return origin in self._origins

    def refuse(self, records: Sequence[Digest], now: float, sent: int = 0, refusal: Refusal = _UNKNOWN) -> None:
        """Takes the records of a request that is refused at ``now`` (seconds).

        ``sent``: its place among all requests. What was sent later may have been refused before, while this one waited.
        Those of a retry that is refused again keep their places. Records before them in that request were accepted, and
        only their responses are missing.
        """
        hashes, following = _hashes(records), 0
        self._last_refusal += 1
        on = self._note(refusal)
        while hashes and (found := self._first_in(hashes, following)) is not None:
            self.since = now
            number, at = found
            run = self._run(at, hashes[number:])
            self._refusals[at : at + run] = array("Q", [self._last_refusal]) * run
            self._on[at : at + run] = array("Q", [on]) * run
            hashes, following = hashes[number + run :], at + run
        room = MOST_RECORDS - len(self._records)
        if hashes and room > 0:
            self.since = now
            count, at = min(room, len(hashes)), bisect_right(self._sent, sent)
            self._records[at:at] = hashes[:count]
            self._refusals[at:at] = array("Q", [self._last_refusal]) * count
            self._on[at:at] = array("Q", [on]) * count
            self._sent[at:at] = array("d", [sent]) * count

    def _note(self, refusal: Refusal) -> int:
        """The place of a connection among those that are known, with what was refused on it last."""
        if len(self._told) > self._most_told:
            self._forget_connections()
        on = self._origins.setdefault(refusal.origin, len(self._told))
        self._told[on : on + 1] = [refusal]
        return on

    def _forget_connections(self) -> None:
        places = {on: place for place, on in enumerate(sorted(set(self._on)))}
        self._told = [self._told[on] for on in places]
        self._origins = {refusal.origin: place for place, refusal in enumerate(self._told)}
        self._on = array("Q", [places[on] for on in self._on])
        self._most_told = max(_FEW_CONNECTIONS, 2 * len(places))

    def admits(self, records: Sequence[Digest], now: float, sent: float = inf, empty_at: float = inf) -> bool:
        """Whether a request with these records, one or more, repeats at ``now`` (seconds) the first that still comes.

        Or was ``sent`` before those that still come (``refuse``). ``empty_at``: when nothing of it was there yet, in
        seconds. Records that it repeats are not awaited any more, nor those before or between them, which their client
        has given up.
        """
        hashes, following = _hashes(records), 0
        while hashes and following < bisect_right(self._sent, sent):
            found = self._first_in(hashes, following)
            if found is None:
                return False  # a new record, and others before it still come
            number, at = found
            if at > following and not self._gave_up(following, at, empty_at):
                return False
            run = self._run(at, hashes[number:])
            hashes, following = hashes[number + run :], at + run
        self.since = now
        del self._records[:following], self._refusals[:following], self._sent[:following], self._on[:following]
        return True

    def _gave_up(self, start: int, at: int, empty_at: float) -> bool:
        """Whether a client that repeats the record ``at`` a place has given up those from ``start`` on before it."""
        mine, last = self._on[at], self._refusals[at]
        skipped = self._on[start:at]
        if any(not self._told[on].was_read(empty_at) for on in set(skipped) - {mine}):
            return False
        refusals = zip(skipped, self._refusals[start:at], strict=True)
        return all(refusal < last for on, refusal in refusals if on == mine)

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
        """The number of these records that are awaited one after another from a place on; at least one."""
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
