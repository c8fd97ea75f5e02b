"""A request that was refused unsent, and how its retry is told from what its client had sent behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.entries import Answer

if TYPE_CHECKING:
    from kproxy.dedup.member import Member

#: Seconds behind a refusal within which the client may still send what it had ready when it read it.
_ON_ITS_WAY_S = 0.5
#: So long a client may take to hear of a new leader and to go on there.
_WAITED_S = 1.0
#: What is repeated behind a refusal with another time got it at least so much later than the refusal was told: clients
#: wait for ``retry.backoff.ms`` (100) first.
_BACKOFF_MS = 50


@dataclass(frozen=True, slots=True)
class Refused:
    """A request for a partition that was refused unsent: what its client sends must not overtake its retry."""

    #: The connection; None if it had no place among those of its producer yet.
    member: "Member | None"
    #: When it was refused, in seconds.
    since: float
    #: What its client is told; other partitions may have to be waited for.
    answer: Answer
    #: Its first record, which its retry holds; None if it can't be read.
    first: Digest | None
    #: The one that was refused before, whose retry comes first.
    before: "Refused | None" = None

    @property
    def told_at(self) -> float:
        """When the client was told, in seconds; infinite if it was not yet."""
        if self.answer.position:
            return self.answer.at
        return self.since if self.member is not None and self.member.ended else inf

    def expired(self, now: float) -> bool:
        """Whether its client has surely gone on, or given up."""
        return now - self.told_at > _WAITED_S

    def crossed_by(self, empty_at: float) -> bool:
        """Whether the client may not have read it when it sent what came behind ``empty_at``, in seconds."""
        return empty_at <= self.told_at + _ON_ITS_WAY_S

    def behind(self, before: "Refused | None") -> "Refused":
        """This one, if ``before`` was refused before; what is known to be behind another one stays so."""
        if self.before is not None or before is None or not before.crossed_by(self.since):
            return self
        return Refused(self.member, self.since, self.answer, self.first, before.before or before)

    def in_retry(self, records: Sequence[Digest]) -> bool:
        """Whether records have the first refused one among them: at the beginning, or behind what had timed out."""
        return (self.before or self).first in records

    def in_retry_of_another_time(self, records: Sequence[Digest]) -> bool:
        """Whether records have the first refused one among them, made anew when the client had read the refusal.

        What was pipelined behind it may have the same content, but was made sooner.
        """
        head = self.before or self
        first = head.first
        if first is None:
            return False
        soonest = first.timestamp_ms + (head.told_at - head.since) * 1000 + _BACKOFF_MS
        return any(
            record.content == first.content
            and (UNTIMED in (record.timestamp_ms, first.timestamp_ms) or record.timestamp_ms >= soonest)
            for record in records
        )
