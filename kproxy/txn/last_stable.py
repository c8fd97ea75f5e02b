"""The last stable offsets that this process reports: of no partition does one ever fall.

An offset of a partition is certain if all below it is decided: a decision is final, and records are only added at the
end. So an offset that was certain once stays so. What is below an offset is known to be decided in three ways:

- The transaction log was read to its end after the offset was seen below the high watermark. Each transaction
  announces its partitions there before it writes to them: all below the lowest announced offset is decided.
- The batches were looked at, from an offset on that is certain already: as a Fetch does for its reader.
- The same was done on purpose, from the lowest announced offset on.

Only what is certain is reported. What this instance has read of the log so far is not enough: another instance may have
announced data since.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from kproxy.codec.topic_partition import TopicPartition

#: Partitions that are remembered; about 20 MB.
_MOST: Final = 50_000
#: While readers are not at the end, the log is read to its end for them so often (seconds).
_ASK_AGAIN_SECONDS: Final = 1.0
#: A partition of which nothing could be found out is not asked for again for so long (seconds).
_QUIET_SECONDS: Final = 10.0
UNKNOWN: Final = -1
"""The last stable offset of a partition of which none is certain; so do brokers say it in Fetch responses."""


class Row(NamedTuple):
    """The offsets in a Fetch response's row of a partition."""

    place: TopicPartition
    #: All that the broker has between this offset and the next one is decided.
    start: int
    decided: int
    #: The broker's last stable offset, by its own transactions.
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question for the offsets up to which partitions are decided."""

    #: Offsets below the high watermark: wanted is each of them or, if that is lower, the last stable offset.
    ends: Mapping[TopicPartition, int]
    #: The same; what the announcements say is enough, which may be lower.
    hints: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: Partitions whose offset may be far below the end: found is no more than that.
    inner: Set[TopicPartition] = frozenset()
    #: Partitions that seem to end before what was reported: either the leader is new, or the log has lost records.
    receded: Set[TopicPartition] = frozenset()
    #: As ``LastStable.forgotten`` was.
    since: int = 0
    #: When it was asked, if for readers (seconds).
    at: float = -inf


@dataclass(slots=True)
class _KnownOffset:
    offset: int
    #: When it was asked for last, for readers.
    asked_at: float


class LastStable:
    """The certain answers, by partition.

    Beyond a limit, the partitions used longest ago are forgotten. When such a partition is used again, the offset found
    is not lower than the one reported before, because the exact last stable offset is determined then.
    """

    def __init__(self, most: int = _MOST) -> None:
        """``most``: partitions that are remembered."""
        self._half = most // 2
        self._new: dict[TopicPartition, _KnownOffset] = {}
        self._old: dict[TopicPartition, _KnownOffset] = {}
        #: The number of times that partitions were forgotten.
        self.forgotten = 0
        #: Until when partitions are not asked for of which nothing is certain.
        self._quiet: dict[TopicPartition, float] = {}

    def reported(self, place: TopicPartition) -> int:
        """The certain answer of a partition; ``UNKNOWN`` if there is none."""
        known = self._find(place)
        return UNKNOWN if known is None else known.offset

    def looked_at(self, row: Row) -> None:
        """Takes what a Fetch has found: it counts if all before it is certain."""
        known = self._find(row.place)
        if known is not None and row.start <= known.offset:
            known.offset = max(known.offset, row.decided)

    # -- asking

    def question_for(self, rows: Iterable[Row], now: float) -> Question | None:
        """The question before a Fetch is answered; None if that can be answered. ``now`` in seconds.

        A reader at the end of a partition asks for nothing: it has looked at all itself.
        """
        ends: dict[TopicPartition, int] = {}
        hints: dict[TopicPartition, int] = {}
        receded: set[TopicPartition] = set()
        is_due = False
        asked: list[_KnownOffset] = []
        for row in rows:
            known = self._find(row.place)
            if known is None:
                if now >= self._quiet.get(row.place, -inf):
                    ends[row.place], is_due = row.end, True
                continue
            if known.offset == row.end:
                continue
            asked.append(known)
            is_due = is_due or now >= known.asked_at + _ASK_AGAIN_SECONDS
            if row.end < known.offset:
                receded.add(row.place)
            if row.end < known.offset or known.offset < row.start:
                ends[row.place] = row.end
            else:
                hints[row.place] = row.end
        if not is_due:
            return None
        for known in asked:
            known.asked_at = now
        return Question(ends, hints, receded=receded, since=self.forgotten, at=now)

    def question_of(self, ends: Mapping[TopicPartition, int], latest: Iterable[TopicPartition]) -> Question:
        """The question for ListOffsets; ``latest``: the partitions of which the end was asked for."""
        latest = ends.keys() & set(latest)
        receded = {place for place in latest if ends[place] < self.reported(place)}
        return Question(ends, inner=ends.keys() - latest, receded=receded, since=self.forgotten)

    def found(
        self, question: Question, answers: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int | None]:
        """Takes what was found; what to report of these partitions: None where that is not known."""
        told: dict[TopicPartition, int | None] = dict.fromkeys(answers)
        for place, answer in answers.items():
            known = self._find(place)
            if answer is None:
                continue
            if known is None and place in question.inner:
                told[place] = answer
                continue
            if known is None:
                # it may have been forgotten meanwhile, with a higher offset
                if place in question.hints or question.since != self.forgotten:
                    continue
                known = self._new[place] = _KnownOffset(answer, question.at)
                self._quiet.pop(place, None)
                self._forget_oldest()
            known.offset = max(known.offset, answer)
            told[place] = known.offset
        return told

    def failed(self, question: Question, now: float) -> None:
        """Stops asking for a while: nothing was found in time."""
        if len(self._quiet) > self._half:
            self._quiet.clear()
        for place in (*question.ends, *question.hints):
            known = self._find(place)
            if known is None:
                self._quiet[place] = now + _QUIET_SECONDS
            else:
                known.asked_at = now + _QUIET_SECONDS - _ASK_AGAIN_SECONDS

    def lost(self, place: TopicPartition) -> None:
        """Forgets what is known of a partition: its log has lost records, or is another topic's."""
        self._new.pop(place, None)
        self._old.pop(place, None)

    # -- what is remembered

    def _find(self, place: TopicPartition) -> _KnownOffset | None:
        known = self._new.get(place)
        if known is None and (known := self._old.pop(place, None)) is not None:
            self._new[place] = known
            self._forget_oldest()
        return known

    def _forget_oldest(self) -> None:
        if len(self._new) > self._half:
            self.forgotten += bool(self._old)
            self._new, self._old = {}, self._new
