"""Answers that have to wait for the transaction log: for a decision, or for how far partitions are decided."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

import trio

from kproxy.codec._generated.offset_fetch import OffsetFetchResponse
from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.commands import WaitForLog
from kproxy.proxy.coordinator_requests import BeforeOffsetChange, BeforeOffsetFetch
from kproxy.proxy.session import NOTHING_TOLD, Session
from kproxy.txn.last_stable import LastStable, Question
from kproxy.txn.verdict import Decisions


class Changes(Protocol):
    """Wakes tasks when more of the log was read."""

    @property
    def version(self) -> int:
        """Rises with whatever is read."""

    async def changed(self, seen: int) -> None:
        """Waits until ``version`` is higher than ``seen``."""


class LoggedGroups(Protocol):
    """Returns what the log says of groups' offsets, for ``kproxy.proxy.offset_fetch_overlay``."""

    async def before_fetch(self, ask: BeforeOffsetFetch) -> OffsetFetchResponse:
        """The offsets of groups that the broker may not know."""
        ...

    async def before_change(self, ask: BeforeOffsetChange) -> OffsetFetchResponse:
        """Returns once the broker has what was committed before; or an error."""
        ...


class CommittedReading(NamedTuple):
    """The transaction log, as connections need it to show committed data alone."""

    decisions: Decisions
    changes: Changes
    #: Finds out up to where partitions are decided, and what to report of each; None where that can't be known.
    stable: Callable[[Question], Awaitable[Mapping[TopicPartition, int | None]]]
    #: Offsets found so far.
    last_stable: LastStable
    #: None where no group's offsets can be in the log.
    groups: LoggedGroups | None = None


async def wait(
    session: Session,
    waiting: WaitForLog,
    reading: CommittedReading | None,
    wall: float,
    turn: Callable[[], Awaitable[None]],
) -> None:
    """Resumes a response when what it waits for is known. ``wall``: trio's clock to seconds since the epoch.
    ``turn``: waits until there is time for its request.

    Without ``reading`` nothing is ever decided, and the response is sent when the client's time-out expires.
    """
    told: Mapping[TopicPartition, int | None] = NOTHING_TOLD
    question = waiting.question
    if question is not None:
        told = dict.fromkeys((*question.ends, *question.hints))
        if reading is not None:
            with trio.move_on_at(waiting.reason.until - wall):
                told = await reading.stable(question)
    due = 0.0
    while True:
        seen = 0 if reading is None else reading.changes.version
        await turn()
        # asked again even before the first wait: what came since the response must not be missed
        if session.resume(waiting, max(trio.current_time() + wall, due), told) is None:
            return
        until = waiting.reason.until
        with trio.move_on_at(until - wall) as scope:
            if reading is None:
                await trio.sleep_forever()
            else:
                await reading.changes.changed(seen)
        due = until if scope.cancelled_caught else 0.0
