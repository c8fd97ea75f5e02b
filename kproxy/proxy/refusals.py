"""Partitions whose next requests are refused unsent.

A client that sends several requests before it reads an answer has sent more behind the one that was refused; were they
taken, they would overtake its retry. And librdkafka has the next request ready while it waits for an answer, and sends
it before it repeats what was refused, also with one request in flight.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kproxy.dedup.digest import Digest, first_of
from kproxy.dedup.lanes import TrackKey

#: Seconds behind a refusal within which the client may still send what it had ready when it read it.
_ON_ITS_WAY = 0.5


@dataclass(slots=True)
class _Told:
    """A refusal that a client was told."""

    error_code: int
    #: When, in seconds; and until when it counts.
    at: float
    until: float
    #: So many requests more that its client had ready are refused.
    left: int
    #: The first record of the refused request: its retry holds it. None if it can't be read.
    first: Digest | None


class Refusals:
    """The refusals of one connection, by partition."""

    def __init__(self) -> None:
        """None."""
        self._to_tell: dict[TrackKey, int] = {}
        self._told: dict[TrackKey, _Told] = {}
        #: Whether there is one; asked for each request.
        self.some = False

    def expect(self, key: TrackKey, error_code: int) -> None:
        """The next request for a partition is to be refused."""
        self._to_tell[key] = error_code
        self.some = True

    def told(self, key: TrackKey, error_code: int, now: float, depth: int, first: Digest | None) -> None:
        """Takes note that a request was refused at ``now``, in seconds.

        ``depth``: so many requests its client has been seen to send before it reads an answer; it may have as many
        ready. ``first``: the request's first record for the partition.
        """
        before = self._told.get(key)
        if before is not None and now <= before.until:
            first = before.first  # the first one's retry comes first
        self._told[key] = _Told(error_code, now, now + _ON_ITS_WAY, 2 * depth - 1, first)
        self.some = True

    def of(
        self,
        keys: Iterable[TrackKey],
        empty_at: float,
        now: float,
        depth: int,
        records: Callable[[TrackKey], Sequence[Digest]],
    ) -> dict[TrackKey, int]:
        """The errors for a request that came behind ``empty_at``, when its connection was last empty; none to take it.

        ``depth``: as for ``told``. ``records``: those of the request for a partition; none if they can't be read.
        """
        errors = {key: self._check(key, empty_at, now, depth, records) for key in keys}
        self.some = bool(self._to_tell or self._told)
        return {key: error_code for key, error_code in errors.items() if error_code}

    def _check(
        self, key: TrackKey, empty_at: float, now: float, depth: int, records: Callable[[TrackKey], Sequence[Digest]]
    ) -> int:
        error_code = self._to_tell.pop(key, 0)
        if error_code:
            self.told(key, error_code, now, depth, first_of(records(key)))
            return error_code
        told = self._told.get(key)
        if told is None:
            return 0
        if _overtakes(told, empty_at, records(key)):
            return told.error_code
        del self._told[key]
        return 0


def _overtakes(told: _Told, empty_at: float, records: Sequence[Digest]) -> bool:
    """Whether a request would be written before the retry of the refused one."""
    if told.first in records:  # at its beginning; or behind what had timed out before, and is put together with it
        return False
    if empty_at < told.at:
        return True  # it was there before the client could read the refusal
    if told.left <= 0 or empty_at > told.until:
        return False
    if told.first is not None and any(record.content == told.first.content for record in records):
        return False  # some clients give what they repeat another time
    told.left -= 1
    return True
