"""The data of an open transaction's former epochs: fenced, so that nothing can follow, then read from partitions.

The instance before may be dead, or only slow, and says nothing. The fence comes before the read: what the former
instance acknowledged is in what is read, and whatever it has in flight is refused.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.txn.ids import LAST_EPOCH, Producer
from kproxy.txn.procedures.former import Former, Scan, Uncertain, summary
from kproxy.txn.procedures.outside import NotPermitted, PartitionReads, Time
from kproxy.txn.view import IdView

#: After so long the transaction is aborted: its client waits, and so do readers.
_MOST_SECONDS: Final = 30.0
#: No batch has it: a producer id that is replaced by the next one is fenced by it.
_BEYOND_ALL: Final = LAST_EPOCH + 1
#: Producer ids of a transactional id that are fenced: each lasts for tens of thousands of epochs.
_GENERATIONS: Final = 2


class FormerEpochs:
    """Fences and reads what open transactions wrote through other instances."""

    def __init__(self, data: PartitionReads, time: Time) -> None:
        """``data``: the partitions."""
        self._data = data
        self._time = time

    async def read(self, view: IdView, parts: Sequence[Producer]) -> Former:
        """The data that these epochs of an id wrote, in their order. Uncertain."""
        with self._time.scope(_MOST_SECONDS):
            try:
                return await self._read(view, parts)
            except (OSError, RemoteProtocolError) as error:
                raise Uncertain(str(error)) from error
        raise Uncertain(f"the transaction's partitions could not be read within {_MOST_SECONDS:.0f} s")

    async def fence(self, producer_ids: Sequence[int], following: Producer, places: Sequence[TopicPartition]) -> None:
        """No epoch before ``following`` writes to these partitions from now on. OSError, RemoteProtocolError.

        ``producer_ids``: those that the transactional id has had, the newest last. Does nothing if kproxy's principal
        has no right to write markers.
        """
        newest = producer_ids[-_GENERATIONS:]
        markers = [(one, following.epoch if one == following.producer_id else _BEYOND_ALL) for one in newest]
        with suppress(NotPermitted):
            await self._data.fence(places, markers)

    async def _read(self, view: IdView, parts: Sequence[Producer]) -> Former:
        fences = {part.producer_id: part.epoch + 1 for part in sorted(parts)}
        places = list(dict.fromkeys(place for part in parts for place in view.bounds.get(part, ())))
        for place, is_new in (await self._data.fence(places, list(fences.items()))).items():
            if not is_new:
                raise Uncertain(f"another instance has fenced the transaction on {place[0]}-{place[1]}")
        ends = await self._data.ends(places)
        scans = {place: Scan(view.bound(place) or 0, ends[place], parts, fences) for place in places}
        for place, why in (await self._data.scan(scans)).items():
            raise Uncertain(f"{place[0]}-{place[1]}: {why}")
        return summary(view, parts, scans)
