"""The logs of brokers, as kproxy looks into them: what it wrote, and fences against what may yet come."""

from collections.abc import Collection, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import structlog
import trio

from kproxy.codec._generated.fetch import FetchResponsePartitionData
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic
from kproxy.codec.messages import ErrorCode
from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_batches import Batch, holds, split_batches, tail_of
from kproxy.net.broker_log_leaders import Leaders, LogError, Place
from kproxy.net.broker_log_questions import (
    EARLIEST,
    LATEST,
    ActiveProducer,
    Marker,
    describe_producers,
    fetch,
    list_offsets,
    write_markers,
)
from kproxy.net.cluster import Cluster
from kproxy.proxy.stats import Stats

__all__ = ["ActiveProducer", "Batch", "BrokerLog", "LogError", "Marker", "Place"]

log = structlog.get_logger("kproxy.broker_log")

#: Brokers that will not write markers for kproxy, however often they are asked.
_REFUSED: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
_WARN_AGAIN_S: Final = 600
#: A tail is read backwards in steps of offsets: the first, and how each grows and shrinks.
_FIRST_STEP: Final = 8
_GROWTH: Final = 4
_NONE: Final[Mapping[Any, int]] = MappingProxyType({})


class BrokerLog:
    """Fences and reads. Every method raises OSError or RemoteProtocolError if brokers do not let it be done.

    It tries for ``delivery_timeout_ms``; leaders may move meanwhile.
    """

    def __init__(self, cluster: Cluster, config: Config, stats: Stats) -> None:
        """``cluster`` knows the brokers; reads and fences are counted in ``stats``."""
        self._config = config
        self._stats = stats
        self._leaders = Leaders(cluster, config)
        self._warned_at = float("-inf")

    def close(self) -> None:
        """Closes the connections that it has of its own."""
        self._leaders.close()

    # -- fences

    async def fence(self, places: Collection[Place], markers: Sequence[Marker]) -> None:
        """Fences each producer id below its epoch on each partition, also where it was never seen.

        A marker is acknowledged when all in-sync replicas have it: all that came before can be read then. Where brokers
        refuse markers, waits until requests on their way must have arrived.
        """
        if not places or not markers:
            return
        refused = 0
        for place, told in (await self._leaders.ask(places, write_markers(markers))).items():
            if told.error_code in _REFUSED:
                refused += 1
            elif told.error_code:
                raise LogError(place, told.error_code, "WriteTxnMarkers")
        self._count_fences("done", (len(places) - refused) * len(markers))
        if refused:
            self._count_fences("refused", refused * len(markers))
            self._warn()
            await trio.sleep(self._config.upstream_request_timeout_ms / 1000)

    def _count_fences(self, outcome: str, count: int) -> None:
        if count:
            self._stats.fences[outcome] = self._stats.fences.get(outcome, 0) + count

    def _warn(self) -> None:
        if trio.current_time() >= self._warned_at + _WARN_AGAIN_S:
            self._warned_at = trio.current_time()
            log.warning(
                "brokers refuse to fence producers; kproxy waits instead, which keeps out fewer late duplicates",
                grant="ClusterAction or Alter on the cluster, to kproxy's principal",
            )

    async def last_sequences(self, topic: str, partition: int) -> dict[int, ActiveProducer]:
        """What a partition remembers of its producers, by producer id."""
        place = topic, partition
        told = (await self._leaders.ask([place], describe_producers()))[place]
        return told.get(place, "DescribeProducers")

    async def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id (16 bytes); None if there is none."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id, name=None)], allow_auto_topic_creation=False
        )
        for topic in (await self._leaders.metadata(request)).topics:
            if topic.topic_id == topic_id and not topic.error_code:
                return topic.name
        return None

    # -- reads and tails

    async def read(self, topic: str, partition: int, first: int, end: int, *, max_bytes: int) -> list[Batch]:
        """The batches that overlap [first, end), markers included, in order; what is deleted already is left out.

        Waits until the log can be read up to ``end``, for ``upstream_request_timeout_ms`` at most. Stops behind the
        batch with which ``max_bytes`` are reached.
        """
        self._stats.readbacks += 1
        batches, following = await self._read((topic, partition), first, end, max_bytes)
        if following < end and sum(len(batch.data) for batch in batches) < max_bytes:
            raise OSError(f"{topic}-{partition} can be read up to {following}, not {end}")
        return [batch for batch in batches if batch.header.base_offset < end]

    async def _read(self, place: Place, first: int, end: int, max_bytes: int) -> tuple[list[Batch], int]:
        """As ``read``, with what came along behind ``end``; and the offset up to which it came."""
        batches: list[Batch] = []
        room = max_bytes
        with trio.move_on_after(self._config.upstream_request_timeout_ms / 1000):
            while first < end and room > 0:
                part = await self._fetch(place, first, room)
                if part is None:
                    readable = await self._offsets([place], EARLIEST)
                    if readable[place] <= first:
                        break  # the log ends before: it was cut, or the topic was made anew
                    first = readable[place]
                    continue
                found, first = split_batches(part.records or b"", first)
                batches += found
                size = sum(len(batch.data) for batch in found)
                room -= size
                self._stats.readback_bytes += size
        return batches, first

    async def _fetch(self, place: Place, first: int, room: int) -> FetchResponsePartitionData | None:
        """A piece of the log; None where the offset is out of range."""
        told = (await self._leaders.ask([place], fetch({place: first}, room)))[place]
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        return told.get(place, "Fetch")

    async def _offsets(self, places: Collection[Place], timestamp: int) -> dict[Place, int]:
        told = await self._leaders.ask(places, list_offsets(timestamp))
        return {place: row.get(place, "ListOffsets") for place, row in told.items()}

    async def tails(
        self,
        places: Collection[Place],
        producer_ids: Container[int],
        *,
        floors: Mapping[Place, int] = _NONE,
        first_epochs: Mapping[int, int] = _NONE,
    ) -> dict[Place, list[Batch]]:
        """The last batches of each of the producers, by partition and in order: 5 or those of 2 s, whichever are more.

        Read backwards from the log's end, ``recovery_max_bytes`` of each partition at most. ``floors``: offsets below
        which nothing is of interest; ``first_epochs``: by producer id the epoch at whose sequence 0 it began.
        """
        if not places:
            return {}
        described = await self._leaders.ask(places, describe_producers())
        active = {place: told.get(place, "DescribeProducers") for place, told in described.items()}
        starts, ends = await self._offsets(places, EARLIEST), await self._offsets(places, LATEST)
        tails: dict[Place, list[Batch]] = {}
        failures: list[OSError | RemoteProtocolError] = []

        async def one(place: Place) -> None:
            wanted = {pid: row for pid, row in active[place].items() if pid in producer_ids}
            start = max(starts[place], floors.get(place, 0))
            try:
                tails[place] = await self._tail(place, wanted, first_epochs, start, ends[place])
            except (OSError, RemoteProtocolError) as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for place in places:
                nursery.start_soon(one, place)
        if failures:
            raise failures[0]
        return tails

    async def _tail(
        self, place: Place, wanted: Mapping[int, ActiveProducer], first_epochs: Mapping[int, int], start: int, end: int
    ) -> list[Batch]:
        if not wanted:
            return []
        self._stats.readbacks += 1
        epochs = {producer_id: first_epochs.get(producer_id) for producer_id in wanted}
        batches, cut = await self._backwards(place, epochs, start, end)
        if cut:
            self._stats.readbacks_failed["too_long"] = self._stats.readbacks_failed.get("too_long", 0) + 1
        elif missing := [row for row in wanted.values() if not _is_in(batches, row)]:
            batches += await self._until_readable(place, end, missing)
        return tail_of(batches, epochs)[0]

    async def _backwards(
        self, place: Place, epochs: Mapping[int, int | None], start: int, end: int
    ) -> tuple[list[Batch], bool]:
        """Batches from ``end`` back until no older one can count; and whether the bytes did not suffice for that."""
        batches: list[Batch] = []
        most = room = self._config.recovery_max_bytes
        low, step = end, _FIRST_STEP
        while low > start and room > 0 and not tail_of(batches, epochs)[1]:
            first = max(start, low - step)
            found, following = await self._read(place, first, low, room)
            if following < low and step > 1:
                step //= _FIRST_STEP  # too much for the bytes that are left: only its newest part counts
                continue
            if following < low:
                break
            room -= sum(len(batch.data) for batch in found)
            own = [batch for batch in found if batch.header.base_offset < low and batch.header.producer_id in epochs]
            batches = own + batches
            low = min([first, *(batch.header.base_offset for batch in found[:1])])
            step = min(step * _GROWTH, max(1, room * (end - low) // (most - room + 1) // 2))  # half of what may fit
        return batches, low > start and not tail_of(batches, epochs)[1]

    async def _until_readable(self, place: Place, end: int, missing: Sequence[ActiveProducer]) -> list[Batch]:
        """What becomes readable at the log's end until the last batch that the leader knows of each producer is in."""
        batches: list[Batch] = []
        room = self._config.recovery_max_bytes
        with trio.move_on_after(self._config.upstream_request_timeout_ms / 1000):
            while room > 0 and not all(
                holds(batches, row.producer_id, row.epoch, row.last_sequence) for row in missing
            ):
                found, end = await self._read(place, end, end + 1, room)
                room -= sum(len(batch.data) for batch in found)
                batches += found
        return batches


def _is_in(batches: Sequence[Batch], row: ActiveProducer) -> bool:
    """Whether the last batch that the leader knows of a producer was read."""
    return holds(batches, row.producer_id, row.epoch, row.last_sequence)
