"""Where partitions ended when transactions announced them: below that lies nothing of their data."""

from collections.abc import Mapping, Sequence
from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_leaders import LogError
from kproxy.net.txn.tools import Ends
from kproxy.txn.errors import TxnError
from kproxy.txn.view import Place
from kproxy.txn.writes import Written

#: Partitions whose ends are remembered, so that the next transaction need not ask for them.
_MOST_ENDS: Final = 10_000


class PartitionEnds:
    """Of those that one transactional id writes, as far as they are known."""

    def __init__(self, ask: Ends) -> None:
        """``ask``: who knows them all."""
        self._ask = ask
        self._ends: dict[Place, int] = {}

    async def of(self, places: Sequence[Place]) -> dict[Place, int]:
        """An offset for each that its end has reached. TxnError if one can't be had."""
        missing = [place for place in places if place not in self._ends]
        if len(self._ends) + len(missing) > _MOST_ENDS:
            self._ends.clear()
            missing = list(places)
        if missing:
            try:
                self._ends.update(await self._ask(missing))
            except LogError as error:
                raise TxnError(ErrorCode(error.error_code), str(error)) from error
            except (OSError, RemoteProtocolError) as error:
                raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"ends of partitions: {error}") from error
        return {place: self._ends[place] for place in places}

    def note(self, written: Mapping[Place, Written]) -> None:
        """They reach behind what was written."""
        self._ends.update({place: done.end_offset for place, done in written.items()})

    def made_anew(self, written: Mapping[Place, Written]) -> str | None:
        """A topic that was deleted and made anew since its end was asked for: what was announced is of another log."""
        for place, done in written.items():
            if done.end_offset <= self._ends.get(place, 0):
                self._ends.clear()
                return place[0]
        return None
