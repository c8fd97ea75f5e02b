"""Asks partitions' leaders for what former epochs of a transaction wrote (``kproxy.txn.procedures.former_epochs``)."""

from collections.abc import Mapping, Sequence
from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.net.broker_log_questions import LATEST, list_offsets, write_markers
from kproxy.net.broker_log_reads import read_logs
from kproxy.net.brokers.leaders import Leaders
from kproxy.proxy.retry_stats import RetryStats
from kproxy.txn.procedures.former import Scan
from kproxy.txn.procedures.outside import Marker, NotPermitted

#: A leader that does not know the high watermark yet says so (KIP-207).
_END: Final = list_offsets(LATEST, oldest=5)
#: kproxy's principal has no right to write markers, or the broker does not serve them.
_FORBIDDEN: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


class FormerData:
    """Asks leaders; OSError and RemoteProtocolError if a leader can't be asked."""

    def __init__(self, leaders: Leaders, config: TransactionOptions, stats: RetryStats) -> None:
        """Reads are counted in ``stats``."""
        self._leaders = leaders
        self._config = config
        self._stats = stats

    async def fence(self, places: Sequence[TopicPartition], markers: Sequence[Marker]) -> Mapping[TopicPartition, bool]:
        """Writes markers that fence; False where a higher epoch had fenced one of them before. NotPermitted."""
        told = await self._leaders.ask(places, write_markers(markers))
        written = {
            place: one.get(place, "WriteTxnMarkers") for place, one in told.items() if one.error_code not in _FORBIDDEN
        }
        for place in told.keys() - written.keys():
            why = "kproxy needs the right ClusterAction"
            raise NotPermitted(f"WriteTxnMarkers for {place[0]}-{place[1]} failed: {why}")
        return written

    async def ends(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The high watermark of each."""
        return await self._leaders.values(places, _END, "ListOffsets")

    async def scan(self, scans: Mapping[TopicPartition, Scan]) -> Mapping[TopicPartition, str]:
        """Has each of ``scans`` take its partition; why not, for those that can't be read."""
        failed = await read_logs(self._leaders, self._config, self._stats, scans)
        return {place: str(error) for place, error in failed.items()}
