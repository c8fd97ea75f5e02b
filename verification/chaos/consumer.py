"""A legacy consumer without a group: reads partitions through kproxy by Fetch v2, from their start, and never jumps."""

from typing import Final

import trio

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
)
from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ErrorCode
from verification.chaos.link import Address, Link, LinkLost, find_leaders
from verification.chaos.recorder import Recorder, now
from verification.history import Kind, Operation, Outcome, Poll

_VERSION: Final = 2
_WAIT_MS: Final = 500
_PATIENCE_S: Final = 8.0
_BACKOFF_S: Final = 0.2
_MAX_BYTES: Final = 1 << 20
_MAX_DECOMPRESSED_BYTES: Final = 1 << 26


class LegacyConsumer:
    """Reads one partition until it is cancelled, and takes down each poll."""

    def __init__(self, name: str, topic: str, partition: int, bootstrap: Address, recorder: Recorder) -> None:
        self._name = name
        self._topic, self._partition = topic, partition
        self._bootstrap = bootstrap
        self._recorder = recorder
        self._position = 0

    async def run(self) -> None:
        """Read; after any failure, reconnect and continue at the same position."""
        while True:
            try:
                leaders = await find_leaders(self._bootstrap, self._name, [self._topic], _PATIENCE_S)
                leader = leaders.get((self._topic, self._partition))
                if leader is not None:
                    async with await Link.open(leader, self._name) as link:
                        await self._read(link)
            except LinkLost as error:
                self._recorder.errors[f"fetch: {error}"] += 1
            await trio.sleep(_BACKOFF_S)

    async def _read(self, link: Link) -> None:
        """Poll on one connection until the broker is no longer the right one."""
        while True:
            invoke = now()
            part = FetchRequestFetchPartition(
                partition=self._partition, fetch_offset=self._position, partition_max_bytes=_MAX_BYTES
            )
            topics = [FetchRequestFetchTopic(topic=self._topic, partitions=[part])]
            request = FetchRequest(replica_id=-1, max_wait_ms=_WAIT_MS, min_bytes=1, topics=topics)
            answer = await link.call(request, _VERSION, FetchResponse, _PATIENCE_S)
            found = answer.responses[0].partitions[0]
            if found.error_code != ErrorCode.NONE:
                self._recorder.errors[f"fetch: {ErrorCode(found.error_code).name}"] += 1
                return
            self._take(found.records or b"", invoke)

    def _take(self, data: bytes | memoryview, invoke: int) -> None:
        # A compressed set begins at its first record, which may lie before the position that was asked for.
        records = tuple(
            (record.offset, (record.value or b"").decode("utf-8", "replace"))
            for record in iter_records(data, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
            if record.offset >= self._position
        )
        if records:
            self._position = records[-1][0] + 1
            poll = Poll(self._topic, self._partition, records)
            self._recorder.add(Operation(self._name, Kind.POLL, Outcome.OK, invoke, now(), polls=(poll,)))
