"""Reads the logs of brokers for what kproxy wrote, and fences producers against batches that may still arrive."""

from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import structlog
import trio

from kproxy.codec._generated.metadata import MetadataRequestTopic
from kproxy.codec.batch_header import BatchHeader
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.retry_options import RetryOptions
from kproxy.dedup.lanes import TrackKey
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_batches import LAST, Batch, Depth
from kproxy.net.broker_log_questions import (
    EARLIEST,
    LATEST,
    ActiveProducer,
    Marker,
    describe_producers,
    list_offsets,
    log_ends,
    write_markers,
)
from kproxy.net.broker_log_reads import Failures, read_logs
from kproxy.net.broker_log_tail import OffsetReads, Tail, Wanted
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders, LogError
from kproxy.proxy.retry_stats import RetryStats

__all__ = ["ActiveProducer", "Batch", "BrokerLog", "Failures", "LogError", "Marker", "Survey"]

Survey: TypeAlias = tuple[int, dict[int, ActiveProducer]]
"""An offset up to which a partition can be read, and what is remembered of its producers, by id."""

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
#: How often leaders may move between two questions.
_ATTEMPTS: Final = 5
_NONE: Final[Mapping[Any, int]] = MappingProxyType({})
_NOBODY: Final[Mapping[Any, Mapping[int, int]]] = MappingProxyType({})
_UNSURVEYED: Final[Mapping[Any, Survey]] = MappingProxyType({})


class BrokerLog:
    """Fences and reads. Every method raises OSError or RemoteProtocolError if brokers do not let it be done.

    It tries for ``delivery_timeout_ms``; leaders may move meanwhile.
    """

    def __init__(self, cluster: Cluster, config: RetryOptions, stats: RetryStats) -> None:
        """``cluster`` knows the brokers; reads and fences are counted in ``stats``."""
        self._config = config
        self._stats = stats
        self._cluster = cluster
        self._leaders = Leaders(cluster, config)
        self._warned_at = float("-inf")

    def wall(self) -> float:
        """The time of the day, in seconds since the epoch."""
        return self._cluster.network.wall()

    def close(self) -> None:
        """Closes the connections that it has of its own."""
        self._leaders.close()

    # -- fences

    async def fence(
        self, places: Collection[TopicPartition], markers: Sequence[Marker], failed: Failures | None = None
    ) -> None:
        """Fences each producer id below its epoch on each partition, even where it was never seen.

        A marker is acknowledged when all in-sync replicas have it: after that, all earlier batches can be read. Where
        brokers refuse markers, this waits until requests in flight must have arrived. With ``failed``, the partitions
        where neither succeeded are added to it.
        """
        if not places or not markers:
            return
        refused, failures = 0, Failures()
        for place, told in (await self._leaders.ask(places, write_markers(markers))).items():
            if told.error_code in _REFUSED:
                refused += 1
                continue
            try:
                if not told.get(place, "WriteTxnMarkers"):
                    await self._fence_again(place, markers)
            except (OSError, RemoteProtocolError) as error:
                failures[place] = error
        self._count_fences("done", (len(places) - refused - len(failures)) * len(markers))
        if refused:
            self._count_fences("refused", refused * len(markers))
            self._warn()
            await trio.sleep(self._config.upstream_request_timeout_ms / 1000)
        _tell(failures, failed)

    async def _fence_again(self, place: TopicPartition, markers: Sequence[Marker]) -> None:
        """Writes markers of the epochs that fenced producers before. OSError, RemoteProtocolError.

        The refusal of a lower one says nothing of the replicas: what precedes the higher one may not be readable yet.
        """
        described = await self._leaders.ask([place], describe_producers())
        active = described[place].get(place, "DescribeProducers")
        again = [(pid, max(epoch, active[pid].epoch if pid in active else epoch)) for pid, epoch in markers]
        told = (await self._leaders.ask([place], write_markers(again)))[place]
        if not told.get(place, "WriteTxnMarkers"):
            raise OSError(f"producers on {place[0]}-{place[1]} are being fenced by others")

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

    async def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id (16 bytes), as brokers say now; None if there is none."""
        response = await self._cluster.metadata.topics([MetadataRequestTopic(topic_id=topic_id, name=None)])
        return next((topic.name for topic in response.topics if not topic.error_code), None)

    async def place_of(self, key: TrackKey, *, by_id: bool) -> TopicPartition | None:
        """The partition by its topic's name; None if no topic has the id. ``by_id``: ``key`` has an id."""
        ref, index = key
        name = await self.topic_name(ref) if by_id else ref.decode("utf-8", "replace")
        return None if name is None else (name, index)

    @property
    def retries_depth(self) -> Depth:
        """The depth that a client's retries may reach."""
        return Depth(self._config.retry_window_ms, int(self.wall() * 1000))

    # -- reads and tails

    async def read_at(
        self,
        offsets: Mapping[TopicPartition, Iterable[int]],
        take: Callable[[TopicPartition, Batch], None],
        failed: Failures,
        settle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Hands ``take`` the batches that hold these offsets, as they come; ``failed`` gets what can't be read.

        ``settle`` is awaited after each round of responses.

        What is deleted already is left out. What can't be read yet is waited for, ``upstream_request_timeout_ms`` at
        most.
        """
        spots = {place: OffsetReads(wanted, partial(take, place)) for place, wanted in offsets.items()}
        self._stats.readbacks += len(spots)
        failed |= await read_logs(self._leaders, self._config, self._stats, spots, settle)

    async def is_lost(self, place: TopicPartition, offset: int, is_met: Callable[[BatchHeader], bool]) -> bool:
        """Whether the log has lost what was written at an offset: it ends before, or has another batch there.

        What retention has deleted is not lost, nor what a new leader has, and does not know yet to be replicated:
        OSError, RemoteProtocolError: it can't be read.
        """
        end = (await self._leaders.ask([place], log_ends()))[place].get(place, "ListOffsets")
        if end <= offset:
            return True
        found: list[Batch] = []
        failed: Failures = {}
        await self.read_at({place: [offset]}, lambda _, batch: found.append(batch), failed)
        for error in failed.values():
            raise error
        return not all(is_met(batch.header) for batch in found)

    async def survey(
        self, places: Collection[TopicPartition], failed: Failures | None = None
    ) -> dict[TopicPartition, Survey]:
        """The offsets up to which partitions can be read, and what leaders knew of producers **after** that was asked.

        So a batch of a producer that is not among these has a later offset. DescribeProducers is answered by any
        replica: it counts only from the broker that had just answered as the leader.
        """
        found: dict[TopicPartition, Survey] = {}
        failures: Failures = {}
        waiting = list(places)
        for _ in range(_ATTEMPTS):
            ends = await self._leaders.ask(waiting, list_offsets(LATEST))
            known = [place for place, end in ends.items() if not end.error_code]
            described = await self._leaders.ask(known, describe_producers())
            waiting = []
            for place, end in ends.items():
                try:
                    row = end.get(place, "ListOffsets"), described[place].get(place, "DescribeProducers")
                except (OSError, RemoteProtocolError) as error:
                    failures[place] = error
                    continue
                if end.by == described[place].by:
                    found[place] = row
                else:
                    waiting.append(place)
        failures.update((place, OSError(f"the leader of {place[0]}-{place[1]} moves on and on")) for place in waiting)
        _tell(failures, failed)
        return found

    async def tails(
        self,
        places: Collection[TopicPartition],
        producer_ids: Container[int],
        *,
        floors: Mapping[TopicPartition, int] = _NONE,
        first_epochs: Mapping[int, int] = _NONE,
        unseen: Mapping[TopicPartition, Mapping[int, int]] = _NOBODY,
        surveyed: Mapping[TopicPartition, Survey] = _UNSURVEYED,
        known: Mapping[TopicPartition, Survey] = _UNSURVEYED,
        failed: Failures | None = None,
        depth: Depth = LAST,
        together: int | None = None,
    ) -> dict[TopicPartition, list[Batch]]:
        """The last batches of each of the producers, by partition and in order, as ``depth`` says.

        They are read backwards from the log's end, at most ``recovery_max_bytes`` of each partition. ``floors``:
        offsets below which nothing is of interest; ``unseen``: the same by producer id; ``first_epochs``: by producer
        id the epoch at whose sequence 0 it began; ``surveyed``: what the leaders returned before, and may have
        forgotten since; ``known``: what they return now: they are not asked again. ``together``: all of them count as
        one producer, which writes under this id now. With ``failed``, partitions that cannot be read are added to it
        and left out.
        """
        failures: Failures = {}
        seen = known or await self.survey(places, failures)
        starts = await self._leaders.ask([place for place in seen if not floors.get(place)], list_offsets(EARLIEST))
        tails: dict[TopicPartition, Tail] = {}
        for place, (end, active) in seen.items():
            none = unseen.get(place, _NONE)
            remembered = surveyed[place][1] | active if place in surveyed else active
            wanted = [
                Wanted(row, first_epochs.get(pid), none.get(pid, 0))
                for pid, row in remembered.items()
                if pid in producer_ids
            ]
            try:
                start = floors.get(place, 0) or starts[place].get(place, "ListOffsets")
            except (OSError, RemoteProtocolError) as error:
                failures[place] = error
                continue
            tails[place] = Tail(wanted, start, end, self._config.recovery_max_bytes, depth, together=together)
            self._stats.readbacks += bool(wanted)
        failures |= await read_logs(self._leaders, self._config, self._stats, tails)
        _tell(failures, failed)
        for tail in tails.values():
            if tail.too_long:
                count = self._stats.readbacks_failed.get("too_long", 0)
                self._stats.readbacks_failed["too_long"] = count + 1
        return {place: tail.batches for place, tail in tails.items() if place not in failures}


def _tell(failures: Failures, failed: Failures | None) -> None:
    """Puts the failures where they are wanted, or raises the first."""
    if failed is not None:
        failed |= failures
        return
    for error in failures.values():
        raise error
