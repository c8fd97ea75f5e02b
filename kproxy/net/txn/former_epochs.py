"""Asks partitions what former epochs wrote: fences them, then reads them for ``kproxy.txn.procedures.former``."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import LATEST, list_offsets, write_markers
from kproxy.net.broker_log_reads import read_logs
from kproxy.net.brokers.leaders import Leaders
from kproxy.proxy.retry_stats import RetryStats
from kproxy.txn.ids import LAST_EPOCH, Producer
from kproxy.txn.procedures.former import Former, Scan, Uncertain, summary
from kproxy.txn.view import IdView

#: After so long the transaction is aborted: its client waits, and so do readers.
_MOST_SECONDS: Final = 30.0
#: A leader that does not know the high watermark yet says so (KIP-207).
_END: Final = list_offsets(LATEST, oldest=5)
#: kproxy's principal has no right to write markers, or the broker does not serve them.
_FORBIDDEN: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)
#: No batch has it: a producer id that is replaced by the next one is fenced by it.
_BEYOND_ALL: Final = LAST_EPOCH + 1
#: Producer ids of a transactional id that are fenced: each lasts for tens of thousands of epochs.
_GENERATIONS: Final = 2

Parts: TypeAlias = Sequence[Producer]


class FormerEpochs:
    """Fences and reads what open transactions wrote through other instances."""

    def __init__(self, leaders: Leaders, config: TransactionOptions, stats: RetryStats) -> None:
        """Reads are counted in ``stats``."""
        self._leaders = leaders
        self._config = config
        self._stats = stats

    async def read(self, view: IdView, parts: Parts) -> Former:
        """What these epochs of an id wrote, the first first. Uncertain."""
        with trio.move_on_after(_MOST_SECONDS):
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
        fences = [(one, following.epoch if one == following.producer_id else _BEYOND_ALL) for one in newest]
        for place, told in (await self._leaders.ask(places, write_markers(fences))).items():
            if told.error_code not in _FORBIDDEN:
                told.get(place, "WriteTxnMarkers")

    async def _read(self, view: IdView, parts: Parts) -> Former:
        fences = {part.producer_id: part.epoch + 1 for part in sorted(parts)}
        places = list(dict.fromkeys(place for part in parts for place in view.bounds.get(part, ())))
        for place, told in (await self._leaders.ask(places, write_markers(list(fences.items())))).items():
            if not told.get(place, "WriteTxnMarkers"):
                raise Uncertain(f"another instance has fenced the transaction on {place[0]}-{place[1]}")
        ends = await self._leaders.ask(places, _END)
        scans = {
            place: Scan(view.bound(place) or 0, ends[place].get(place, "ListOffsets"), parts, fences)
            for place in places
        }
        failed = await read_logs(self._leaders, self._config, self._stats, scans)
        for place, error in failed.items():
            raise Uncertain(f"{place[0]}-{place[1]}: {error}")
        return summary(view, parts, scans)
