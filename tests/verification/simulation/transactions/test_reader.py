"""A model consumer."""

from collections.abc import Callable
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
from kproxy.codec._generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode, Message
from tests.verification.simulation.transactions.peers import ADDRESS, Peer
from verification.simulation.transactions.reader import Reader

#: Offsets 0 to 3.
LOG = bytes(build_batch([Record(at, 0, None, b"%d" % at) for at in range(4)]))


class Log:
    """A leader of all partitions with one batch in each, which says an error first."""

    def __init__(self, nursery: trio.Nursery, *, committed: bool = True, error: int = 0) -> None:
        self._errors = [error]
        self.stable = 4
        self.shown: list[tuple[int, int, bytes]] = []
        self.peer = Peer(nursery, self._answer, silent=False)
        take = self.shown.append
        #: Requested partitions, and the response for each.
        self.asked: list[int] = []
        self.told: list[int] = []
        self.reader = Reader(
            self.peer.calls(),
            4,
            committed=committed,
            shown=lambda place, offset, value: take((place, offset, value)),
            asks=self._asks,
        )

    def _asks(self, place: int) -> Callable[[int], None]:
        self.asked.append(place)
        return self.told.append

    def _answer(self, request: Any, _: int) -> Message:
        error = self._errors.pop() if self._errors and not hasattr(request, "allow_auto_topic_creation") else 0
        if isinstance(request, FetchRequest):
            index = request.topics[0].partitions[0].partition
            row: Any = FetchResponsePartitionData(
                partition_index=index, error_code=error, high_watermark=9, last_stable_offset=self.stable, records=LOG
            )
            return FetchResponse(responses=[FetchResponseFetchableTopicResponse(topic="t", partitions=[row])])
        if isinstance(request, ListOffsetsRequest):
            row = ListOffsetsResponseListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=4)
            return ListOffsetsResponse(topics=[ListOffsetsResponseListOffsetsTopicResponse("t", [row])])
        rows = [MetadataResponsePartition(partition_index=n, leader_id=1) for n in range(3)]
        topics = [MetadataResponseTopic(name="t", partitions=rows)]
        return MetadataResponse(brokers=[MetadataResponseBroker(1, *ADDRESS)], topics=topics)


async def test_records_are_shown_once_in_order(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    log = Log(nursery)
    await log.reader.poll(1)
    await log.reader.poll(1)
    assert log.shown == [(1, at, b"%d" % at) for at in range(4)]
    assert log.reader.values[1] == {at: b"%d" % at for at in range(4)}
    assert (log.reader.positions[1], log.reader.ends[1]) == (4, 4)


async def test_a_reader_of_everything_receives_the_high_watermark(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log = Log(nursery, committed=False)
    await log.reader.poll(0)
    assert (log.reader.ends[0], log.asked) == (9, [])


async def test_each_last_stable_offset_is_reported(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    log = Log(nursery)
    for log.stable in (4, 6, -1):
        await log.reader.poll(1)
    assert (log.asked, log.told) == ([1, 1, 1], [4, 6, -1])


async def test_an_error_is_got_over(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    log = Log(nursery, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await log.reader.read_to(0, 4)
    assert len(log.shown) == 4


async def test_the_end_is_reported_or_is_not(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    log = Log(nursery, error=ErrorCode.OFFSET_NOT_AVAILABLE)
    assert await log.reader.end(0) is None
    assert await log.reader.end(0) == 4
