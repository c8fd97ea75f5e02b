"""The final check of a run: everything is read at each partition, by new readers, until all agree on a state."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio

from kproxy.testing.fake_broker.transactional_ids import TxnState
from verification.simulation.plan import TOPIC
from verification.simulation.transactions import invariants
from verification.simulation.transactions.plan import PLACES
from verification.simulation.transactions.reader import Reader

if TYPE_CHECKING:
    from verification.simulation.transactions.world import TransactionWorld

#: After the last fault: transactions are overdue, their kproxies are known to have ended, and all is read.
_SETTLE: Final = 120.0
_LOOK: Final = 0.5
#: All is read so often at most, until nothing is written meanwhile.
_MOST_ROUNDS: Final = 20


class LastLook:
    """The final check of one run.

    The last request of a producer that was killed may still be in flight. It writes to two partitions, and a reader
    could have read one of them too early: so all read on until the logs end where they ended at the beginning.
    """

    def __init__(self, world: "TransactionWorld", readers: Sequence[Reader]) -> None:
        """``readers`` have read all the while."""
        self._world = world
        self._told = world.told
        self._readers = readers
        #: New readers of what is committed, one at each place.
        self.committed = [world.reader(f"last-{place}", place) for place in world.places]
        self.everything = world.reader("all", 0, committed=False)
        #: Of groups, as each place has told them.
        self._groups: list[Mapping[str, int]] = []
        #: Whether all has been read; else what the readers have is no ground to judge on.
        self.is_whole = False

    @property
    def positions(self) -> Mapping[str, int]:
        """Positions of groups, as the first place that was asked has reported them."""
        return self._groups[0] if self._groups else {}

    async def take(self) -> None:
        """Reads; what does not come to rest, or is reported in two ways, is a finding."""
        for _ in range(_MOST_ROUNDS):
            ends = self._ends()
            if not await self._read():
                break
            await self._compare(ends)
            if ends == self._ends():
                self.is_whole = True
                break
        else:
            self._told.breaks(invariants.STUCK, f"logs do not come to rest, and end at {self._ends()}")
        self._agree()
        if left := self._open_at_brokers():
            self._told.breaks(invariants.STUCK, f"the brokers have transactions of {' '.join(left)} open")

    async def _read(self) -> bool:
        """Each new reader reads all, and groups are asked for where it reads; whether all is decided."""
        self._groups = []
        for place, reader in zip(self._world.places, self.committed, strict=True):
            with trio.move_on_after(_SETTLE) as scope:
                await self._settled(reader, place)
            if scope.cancelled_caught:
                stable = [self._told.stable.get(partition, 0) for partition in range(PLACES)]
                how = f"{reader.positions} and {stable} where logs end at {self._ends()}"
                self._told.breaks(invariants.STUCK, how)
                return False
            self._groups.append(await self._ask_groups(place))
        return True

    async def _settled(self, reader: Reader, place: int) -> None:
        """Everything is decided, by what this reader receives, and read."""
        for partition in range(PLACES):
            while await self._world.look(reader, partition, place) < self._end(partition):  # noqa: ASYNC110 - asked again
                await trio.sleep(_LOOK)
            await reader.read_to(partition, self._end(partition))

    async def _ask_groups(self, place: int) -> Mapping[str, int]:
        """The last positions of groups."""
        watch = self._world.group_watch(f"last-groups-{place}", place)
        found: dict[str, int] = {}
        for group in self._told.positions:
            with trio.move_on_after(_SETTLE) as scope:
                found[group] = await watch.position(group)
            if scope.cancelled_caught:
                self._told.breaks(invariants.STUCK, f"the offset of {group} is not told")
        return found

    async def _compare(self, ends: Sequence[int]) -> None:
        """Old readers come as far as new ones, and the brokers to an end, unless something is written meanwhile."""
        with trio.move_on_after(_SETTLE):
            for partition, end in enumerate(ends):
                await self.everything.read_to(partition, end)
            for reader in self._readers:
                # not to the end: old ones can't be told that hidden batches follow
                new = self.committed[0] if reader.committed else self.everything
                while reader.values != new.values and ends == self._ends():  # noqa: ASYNC110 - it reads by itself
                    await trio.sleep(_LOOK)
        with trio.move_on_after(_SETTLE):
            while self._open_at_brokers():  # noqa: ASYNC110 - its time-out ends it
                await trio.sleep(_LOOK)

    def _agree(self) -> None:
        """All places have told the same of groups."""
        for told in self._groups:
            for group, position in told.items():
                first = self.positions.get(group, position)
                if position != first:
                    self._told.breaks(invariants.MOVED, f"{group} is at {position} and at {first}")

    def _open_at_brokers(self) -> Sequence[str]:
        """Transactional ids whose transactions the brokers have not ended."""
        ids = self._world.brokers.transactional_ids
        return sorted(name for name, owner in ids.items() if owner.prepared or owner.state is TxnState.ONGOING)

    def _ends(self) -> list[int]:
        return [self._end(partition) for partition in range(PLACES)]

    def _end(self, partition: int) -> int:
        return self._world.brokers.topics[TOPIC].partitions[partition].log.end_offset
