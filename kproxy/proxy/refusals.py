"""Partitions whose next requests are refused unsent.

A client that sends several requests before it reads a response has sent more after the one that was refused. If they
were accepted, they would overtake its retry. librdkafka, even with one request in flight, has the next request ready
while it waits for a response, and sends it before it repeats the refused one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from kproxy.dedup.digest import Digest
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.origin import Origin
from kproxy.dedup.refused import Refused


@dataclass(slots=True)
class _Refusal:
    """A refusal that a client receives."""

    error_code: int
    refused: Refused
    #: On this connection: all requests that arrive before the client is answered are refused.
    here: bool

    def overtakes(self, origin: Origin, empty_at: float, records: Sequence[Digest]) -> bool:
        """Whether a request over a connection would be written before the retry of the refused one."""
        refused, retry = self.refused, self.refused.retry
        if retry.ended:
            return self.here and empty_at < retry.ended_at  # it was there before: its client will repeat it, too
        if self.here and refused.answered_at == inf:
            return True  # nobody can have read what is not told
        if refused.in_retry(records):
            return False
        if empty_at < (refused.answered_at if self.here else refused.since):
            return True  # it was there before the client could read the refusal
        if retry.left <= 0 or not refused.crossed_by(empty_at):
            return False
        if refused.in_retry_of_another_time(records, empty_at):
            return False
        # Not what a connection that was left delivers late, nor a retry with new timestamps that came too soon to be
        # known for one.
        delivered_late = refused.answered_at < inf and refused.is_of_later(origin)
        if not (delivered_late or refused.is_repeated_by(records)):
            retry.left -= 1
        return True


class Refusals:
    """The refusals of one connection, by partition."""

    def __init__(self) -> None:
        """None."""
        self._to_tell: dict[TrackKey, int] = {}
        self._told: dict[TrackKey, _Refusal] = {}
        #: Whether there is one; asked for each request.
        self.some = False

    def expect(self, key: TrackKey, error_code: int) -> None:
        """The next request for a partition is to be refused."""
        self._to_tell[key] = error_code
        self.some = True

    def told(self, key: TrackKey, error_code: int, refused: Refused, *, here: bool = True) -> None:
        """Records a refused request; ``here``: on this connection."""
        before = self._told.get(key)
        if before is not None:
            if not here and before.refused.retry is refused.retry:
                return  # it is known already
            refused = refused.following(before.refused)
        self._told[key] = _Refusal(error_code, refused, here)
        self.some = True

    def of(
        self,
        keys: Iterable[TrackKey],
        origin: Origin,
        empty_at: float,
        now: float,
        records: Callable[[TrackKey], Sequence[Digest]],
        refuse: Callable[[TrackKey, Refused | None], Refused | None],
    ) -> dict[TrackKey, int]:
        """The errors for a request that arrived after ``empty_at``, when its connection was last empty; none to accept
        it.

        ``origin``: the connection, as it was before. ``records``: those of the request for a partition; none if they
        can't be read. ``refuse`` records for the producer's other connections that the request is refused for a
        partition, lest it overtake the retry of the given one. It gives None if the order is kept in another way
        (``AwaitedRecords``).
        """
        errors = {key: self._check(key, origin, empty_at, now, records, refuse) for key in keys}
        self.some = bool(self._to_tell or self._told)
        return {key: error_code for key, error_code in errors.items() if error_code}

    def _check(
        self,
        key: TrackKey,
        origin: Origin,
        empty_at: float,
        now: float,
        records: Callable[[TrackKey], Sequence[Digest]],
        refuse: Callable[[TrackKey, Refused | None], Refused | None],
    ) -> int:
        error_code = self._to_tell.pop(key, 0)
        if error_code:
            refused = refuse(key, None)
            if refused is not None:
                self.told(key, error_code, refused)
            return error_code
        told = self._told.get(key)
        if told is None:
            return 0
        if told.overtakes(origin, empty_at, records(key)):
            refuse(key, told.refused)
            return told.error_code
        told.refused.retry.end(now)
        del self._told[key]
        return 0
