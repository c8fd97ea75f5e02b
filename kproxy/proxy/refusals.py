"""Partitions whose next requests are refused unsent.

A client that sends several requests before it reads an answer has sent more behind the one that was refused; were they
taken, they would overtake its retry.
"""

from collections.abc import Iterable

from kproxy.dedup.lanes import TrackKey

#: Seconds that a refusal may take to the client; what arrives within may have been sent before it was read.
_ON_ITS_WAY = 0.05


class Refusals:
    """The refusals of one connection, by partition."""

    def __init__(self) -> None:
        """None."""
        self._to_tell: dict[TrackKey, int] = {}
        #: The error, until when it counts, and for how many requests more.
        self._told: dict[TrackKey, tuple[int, float, int]] = {}
        #: Whether there is one; asked for each request.
        self.some = False

    def expect(self, key: TrackKey, error_code: int) -> None:
        """The next request for a partition is to be refused."""
        self._to_tell[key] = error_code
        self.some = True

    def told(self, key: TrackKey, error_code: int, now: float, depth: int) -> None:
        """Takes note that a request was refused at ``now``, in seconds.

        ``depth``: so many requests its client has been seen to send before it reads an answer.
        """
        self._told[key] = (error_code, now + _ON_ITS_WAY, depth - 1)
        self.some = True

    def of(self, keys: Iterable[TrackKey], empty_at: float, now: float, depth: int) -> dict[TrackKey, int]:
        """The errors for a request that came behind ``empty_at``, when its connection was last empty; none to take it.

        ``depth``: as for ``told``.
        """
        errors = {key: self._check(key, empty_at, now, depth) for key in keys}
        self.some = bool(self._to_tell or self._told)
        return {key: error_code for key, error_code in errors.items() if error_code}

    def _check(self, key: TrackKey, empty_at: float, now: float, depth: int) -> int:
        error_code = self._to_tell.pop(key, 0)
        if error_code:
            self.told(key, error_code, now, depth)
            return error_code
        error_code, until, left = self._told.pop(key, (0, 0.0, 0))
        if left <= 0 or empty_at > until:
            return 0
        self._told[key] = (error_code, until, left - 1)
        return error_code
