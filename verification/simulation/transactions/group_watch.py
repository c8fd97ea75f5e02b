"""Reads the offsets of groups at each kproxy, and compares them with the responses that producers received."""

from typing import Any, Final

import trio

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from verification.simulation.plan import TOPIC
from verification.simulation.transactions import invariants
from verification.simulation.transactions.calls import LOST, Calls
from verification.simulation.transactions.history import Input, TransactionHistory

_FIND: Final = 3
_FETCH: Final = 7
_BACKOFF: Final = 0.3


class GroupWatch:
    """A watch on groups' offsets through one kproxy."""

    def __init__(self, calls: Calls, history: TransactionHistory) -> None:
        """``calls`` are a client's of that kproxy."""
        self._calls = calls
        self._history = history
        #: By group the highest position that was reported.
        self._highest: dict[str, int] = {}

    async def position(self, group: str) -> int:
        """The offset of a group, asked for until there is a response; 0 if it has none."""
        while True:
            least = self._history.least_position(group)
            try:
                told = await self._ask(group)
            except LOST:
                told = None
            if told is not None:
                self._judge(group, told, least)
                return told
            await trio.sleep(_BACKOFF)

    def _judge(self, group: str, told: int, least: int) -> None:
        """A position is right at once: not below what was committed before the question, nor what was never asked."""
        history, before = self._history, self._highest.get(group, 0)
        if told != before:
            history.note(f"{group} stands at {told}")
        self._highest[group] = max(told, before)
        if told < max(least, before):
            history.breaks(invariants.MOVED, f"{group} stands at {told}, it was at {max(least, before)} before")
        moved = history.of_input(Input(group, told))
        if told and not any(one.asked and one.told is not False for one in moved):
            history.breaks(invariants.MOVED, f"{group} stands at {told}, which nobody has committed")

    async def _ask(self, group: str) -> int | None:
        """None while the coordinator can't say."""
        found: Any = await self._calls.bootstrap(FindCoordinatorRequest(key=group, key_type=0), _FIND)
        if found.error_code:
            return None
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        request = OffsetFetchRequest(group, [topic], require_stable=True)
        answer: Any = await self._calls.ask((found.host, found.port), request, _FETCH)
        row = answer.topics[0].partitions[0] if answer.topics else None
        if answer.error_code or row is None or row.error_code:
            return None
        return max(0, int(row.committed_offset))
