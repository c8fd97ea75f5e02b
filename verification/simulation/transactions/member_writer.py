"""A producer that knows nothing of transactions, and whose records are a part of one; it repeats nothing."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import trio

from kproxy.codec.messages import ErrorCode
from verification.simulation.transactions.batches import plain_request
from verification.simulation.transactions.calls import LOST, Calls
from verification.simulation.transactions.history import Claimed, TransactionHistory

_PRODUCE: Final = 7
_RECONNECTS: Final = 1.0


class WriteFailed(Exception):
    """A record has no acknowledgement."""


class MemberWriter:
    """The writer of one part."""

    def __init__(
        self, calls: Calls, history: TransactionHistory, say: Callable[[str], None], *, stubborn: bool
    ) -> None:
        """``calls`` under the part's client.id; ``stubborn``: what failed is sent once more, in vain."""
        self._calls = calls
        self._history = history
        self._say = say
        self._stubborn = stubborn

    async def write(self, claimed: Claimed, batches: Sequence[tuple[int, int]]) -> None:
        """Writes so many new records each to some partitions, all at once. ``WriteFailed``."""
        failures: list[WriteFailed] = []

        async def one(place: int, count: int) -> None:
            try:
                await self._one(claimed, place, self._history.values(claimed, place, count, late=False))
            except WriteFailed as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for place, count in batches:
                nursery.start_soon(one, place, count)
        if failures:
            raise failures[0]

    async def _one(self, claimed: Claimed, place: int, values: list[bytes]) -> None:
        text = b" ".join(values).decode()
        row = await self._send(place, values, text)
        if row is not None and not row.error_code:
            self._history.acknowledges(claimed, place, values, row.base_offset)
            return
        why = "no answer" if row is None else ErrorCode(row.error_code).name
        self._say(f"has not written {text}: {why}")
        if self._stubborn:
            self._calls.forget(place)
            await trio.sleep(_RECONNECTS)
            await self._send(place, values, text)
        raise WriteFailed(why)

    async def _send(self, place: int, values: list[bytes], text: str) -> Any:
        self._say(f"sends {place}: {text}")
        try:
            leader = await self._calls.leader(place)
            answer: Any = await self._calls.ask(leader, plain_request({place: values}), _PRODUCE)
        except LOST:
            return None
        (row,) = answer.responses[0].partition_responses
        return row
