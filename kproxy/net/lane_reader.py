"""Reads the lane log of an instance from its start to its end."""

from typing import Final

import structlog
import trio

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
)
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.batch_reader import entry_size
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.former_lanes import FormerLanes
from kproxy.errors import RemoteProtocolError
from kproxy.net.lane_topic import TOPIC, check
from kproxy.net.partition_client import NoLeader, PartitionClient

log = structlog.get_logger("kproxy.lane_log")

_LATEST: Final = -1
_EARLIEST: Final = -2
#: From v5 on a new leader that does not know the high watermark yet says so (KIP-207).
_LIST_OFFSETS, _FETCH = (1, 5), (4, 11)
_FETCH_BYTES = 1 << 20
_FETCH_WAIT_MS = 500
_DECOMPRESSED_BYTES = 16 << 20
_PROGRESS_SECONDS = 5.0


class LaneReader:
    """Reads on where it was when an attempt failed."""

    def __init__(self, client: PartitionClient, former: FormerLanes) -> None:
        """Entries go to ``former``."""
        self._client = client
        self._former = former
        self._next: int | None = None
        self._told_at = trio.current_time()

    async def read(self) -> None:
        """Reads to what is the end now. OSError, RemoteProtocolError: try again; Refused."""
        try:
            end = await self._offset(_LATEST)
            if self._next is None:
                self._next = await self._offset(_EARLIEST)
            while self._next < end:
                part = await self._fetch(self._next)
                if not part.records:
                    if part.high_watermark < end:
                        raise OSError("the leader has less than it had")
                    return  # nothing but what compaction left out
                self._next = self._take(memoryview(part.records), self._next)
                self._tell(end)
        except NoLeader as lost:
            check("Metadata", lost.error_code)
            raise
        except BaseException:
            self._client.moved()
            raise

    async def _offset(self, timestamp: int) -> int:
        wanted = ListOffsetsRequestListOffsetsPartition(partition_index=self._client.partition, timestamp=timestamp)
        topic = ListOffsetsRequestListOffsetsTopic(name=TOPIC, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = await self._client.call(request, ListOffsetsResponse, _LIST_OFFSETS)
        row = response.topics[0].partitions[0]
        check("ListOffsets", row.error_code)
        return row.offset

    async def _fetch(self, offset: int) -> FetchResponsePartitionData:
        wanted = FetchRequestFetchPartition(
            partition=self._client.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[FetchRequestFetchTopic(topic=TOPIC, partitions=[wanted])],
        )
        response = await self._client.call(request, FetchResponse, _FETCH, extra_ms=_FETCH_WAIT_MS)
        check("Fetch", response.error_code)
        part = response.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._next = None  # deleted under the reader: what is left is read from its start
            raise OSError(f"{TOPIC} begins behind offset {offset}")
        check("Fetch", part.error_code)
        return part

    def _take(self, data: memoryview, offset: int) -> int:
        """Takes the whole batches; the offset behind them. What is damaged is counted and passed over."""
        pos = 0
        while (size := entry_size(data, pos)) and pos + size <= len(data):
            offset = max(offset, self._take_batch(data[pos : pos + size]))
            pos += size
        if pos == 0:
            raise RemoteProtocolError(f"{TOPIC} has no whole batch at offset {offset}")
        return offset

    def _take_batch(self, batch: memoryview) -> int:
        last = int.from_bytes(batch[:8], "big", signed=True)
        try:
            last += read_header(batch).last_offset_delta
            self._former.apply(iter_records(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES))
        except RemoteProtocolError:
            self._former.damaged += 1
        return last + 1

    def _tell(self, end: int) -> None:
        if trio.current_time() >= self._told_at + _PROGRESS_SECONDS:
            self._told_at = trio.current_time()
            log.info("reading the producer ids of the former kproxy", offset=self._next, end=end)
