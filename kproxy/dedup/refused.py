"""A request that was refused unsent, and how its retry is distinguished from what its client had sent after it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.origin import ELSEWHERE, Origin
from kproxy.dedup.unconfirmed import PendingProduce

if TYPE_CHECKING:
    from kproxy.dedup.producer_connection import ProducerConnection

#: Seconds after a refusal within which the client may still send requests that it made before it read the refusal.
_ON_ITS_WAY_S = 0.5
#: Seconds that a client may need to learn of a new leader and to continue there.
_WAITED_S = 1.0
#: So many of the records of a request are kept, to know its retry by.
_KEPT = 8
#: A retry whose records have new timestamps arrives at least so many seconds after the response: clients wait for
#: ``retry.backoff.ms`` (100) first.
_BACKOFF_S = 0.05


@dataclass(slots=True, eq=False)
class AwaitedRetry:
    """The wait for the retry of a refused request: all connections of its producer share it."""

    #: So many requests more that its client had ready are refused.
    left: int
    #: When the retry was accepted over any connection, or the client had surely given it up; in seconds.
    ended_at: float = inf

    @property
    def ended(self) -> bool:
        """Whether the retry is no longer expected."""
        return self.ended_at < inf

    def end(self, now: float) -> None:
        """Records that a request was accepted at ``now``: the retry, or one that shows that none comes."""
        self.ended_at = min(self.ended_at, now)


@dataclass(frozen=True, slots=True)
class Refused:
    """A request for a partition that was refused unsent: what its client sends must not overtake its retry."""

    #: The connection; None if it had no place among those of its producer yet.
    member: "ProducerConnection | None"
    #: When it was refused, in seconds.
    since: float
    #: When nothing of it was there yet, in seconds: it may have waited for long before it was refused.
    empty_at: float
    #: The response that its client receives; other partitions may have to be waited for.
    answer: PendingProduce
    #: Its first records. Its retry begins with them, or has them after records that had timed out. Empty if unreadable.
    records: Sequence[Digest]
    #: The retry that comes first: its own, or that of ``before``.
    retry: AwaitedRetry
    #: The one that was refused before, whose retry comes first.
    before: "Refused | None" = None

    @classmethod
    def of(
        cls,
        member: "ProducerConnection | None",
        since: float,
        answer: PendingProduce,
        records: Sequence[Digest],
        depth: int = 1,
        empty_at: float | None = None,
    ) -> "Refused":
        """``records``: all of its records for the partition; ``empty_at``: by default it was refused at once.

        ``depth``: so many requests its client has been seen to send before it reads a response; it may have as many
        ready.
        """
        came = since if empty_at is None else empty_at
        return cls(member, since, came, answer, tuple(records[:_KEPT]), AwaitedRetry(2 * depth - 1))

    @property
    def answered_at(self) -> float:
        """The time when the client was answered, in seconds; infinite if it was not yet."""
        if self.answer.position:
            return self.answer.at
        return self.since if self.member is not None and self.member.ended else inf

    @property
    def _head(self) -> "Refused":
        """The refused request whose retry comes first."""
        return self.before or self

    def expired(self, now: float) -> bool:
        """Whether its client has surely gone on, or given up."""
        return now - self.answered_at > _WAITED_S

    def crossed_by(self, empty_at: float) -> bool:
        """Whether the client may not have read the refusal when it sent what arrived after ``empty_at``, in seconds."""
        return empty_at <= self.answered_at + _ON_ITS_WAY_S

    def is_of_later(self, origin: Origin) -> bool:
        """Whether its connection was opened after another one that was not used since.

        The client may have left the other one. What is still delivered over that is not what it has ready now.
        """
        mine = ELSEWHERE if self.member is None else self.member.origin
        return max(origin.opened_at, origin.used_at) < mine.opened_at

    def following(self, before: "Refused | None") -> "Refused":
        """This one, if ``before`` was refused before, and its retry is still expected.

        It follows that retry if its client may have sent it before it read the refusal, however late it was refused.
        """
        if before is None or before.retry.ended or not before.crossed_by(self.empty_at):
            return self
        return self.overtaking(before)

    def overtaking(self, before: "Refused") -> "Refused":
        """This one, which would overtake the retry of ``before``; what is known to follow another one stays so.

        The retry of ``before``, refused as well, follows none: its own retry comes first.
        """
        if self.before is not None or before.in_retry(self.records):
            return self
        return replace(self, before=before._head, retry=before.retry)

    def in_retry(self, records: Sequence[Digest]) -> bool:
        """Whether records contain the first refused ones: at the beginning, or after records that had timed out."""
        return _continues_with(self._head.records, records, lambda record, refused: record == refused)

    def is_repeated_by(self, records: Sequence[Digest]) -> bool:
        """The same as ``in_retry``, by their contents: whatever the timestamps of the refused ones are in them."""
        return _continues_with(self._head.records, records, lambda record, refused: record.content == refused.content)

    def in_retry_of_another_time(self, records: Sequence[Digest], empty_at: float) -> bool:
        """Whether records that arrived after ``empty_at`` contain the first refused ones with newer timestamps.

        The timestamps must be of a time after the client had read the refusal. Requests pipelined after the refused one
        may have the same content, but were made sooner.
        """
        head = self._head
        if empty_at < head.answered_at + _BACKOFF_S:
            return False
        later_ms = (head.answered_at - head.since + _BACKOFF_S) * 1000

        def rebuilt(record: Digest, refused: Digest) -> bool:
            untimed = UNTIMED in (record.timestamp_ms, refused.timestamp_ms)
            return record.content == refused.content and (
                untimed or record.timestamp_ms >= refused.timestamp_ms + later_ms
            )

        return _continues_with(head.records, records, rebuilt)


def _continues_with(
    first: Sequence[Digest], records: Sequence[Digest], is_same: Callable[[Digest, Digest], bool]
) -> bool:
    """Whether ``records`` have ``first`` from some place on, as far as they go: a retry may be cut in parts.

    A part of it that follows other records is one only if those are older, by their times: otherwise it may as well be
    equal records of what was sent after the refused request.
    """
    kept = len(first)
    return kept > 0 and any(
        all(map(is_same, records[at : at + kept], first))
        and (at == 0 or at + kept <= len(records) or UNTIMED < records[at - 1].timestamp_ms <= first[0].timestamp_ms)
        for at in range(len(records))
    )
