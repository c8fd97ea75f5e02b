"""Carries out the repair of errors about the numbers of kept producers (``kproxy.dedup.kept.repair``)."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from kproxy.budget import READ_RECORD_STEPS, RECORD_SET_BYTES_IN_STEP
from kproxy.codec._generated.produce import ProduceResponse
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import FIRST_TOPIC_ID
from kproxy.codec.sequence import advance
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config import Config
from kproxy.dedup.digest import Digest, Digests
from kproxy.dedup.kept.producers import MOST_REPEATED
from kproxy.dedup.kept.raised import OldRecord, align, count_written
from kproxy.dedup.kept.repair import is_told, repair
from kproxy.dedup.kept.steps import (
    FOUND_OLDER,
    SEND_AGAIN,
    Check,
    FenceOff,
    Find,
    FindRecords,
    FoundRecords,
    LeaderView,
    Look,
    Remembered,
    Send,
    Step,
    Told,
)
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.losses import ReportLoss
from kproxy.dedup.produce_outcome import ProduceOutcome, outcome_of
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log import ActiveProducer, BrokerLog
from kproxy.net.broker_log_batches import Batch, Depth
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.metadata import NoLeader
from kproxy.net.brokers.pool import Pool
from kproxy.net.log_reading import LogReading
from kproxy.net.long_work import done
from kproxy.net.single_batch import send_batch
from kproxy.proxy.coordinator_requests import CoordinatorAnswer
from kproxy.proxy.kept_calls import KeptPart, RepairRequest, replace_rows, report_missing, rest_of, restamp
from kproxy.proxy.kept_stats import KeptStats

if TYPE_CHECKING:
    from kproxy.dedup.kept.producers import KeptPartition

log = structlog.get_logger("kproxy.resend")

#: Batches of one request that are looked into at a time; its client sends the others again. Else a request for ten
#: thousand partitions would cost the brokers twenty thousand.
MOST_AT_ONCE: Final = 64
#: The client sends again after these: nothing of the batch was written, as far as is known.
_UNREACHABLE: Final = Told(SEND_AGAIN, cause="unreachable")
_LATER: Final = Told(SEND_AGAIN, cause="put_off")
#: What a client has no response for is among its last batches.
_LAST_FEW: Final = Depth(0, batches=MOST_REPEATED)
_NO_TIME: Final = Told(ErrorCode.REQUEST_TIMED_OUT, cause="unreachable")


class KeptRepairs:
    """The repairs of a process: of one partition of a producer one after the other, in the order of the responses."""

    def __init__(
        self, cluster: Cluster, config: Config, broker_log: BrokerLog, stats: KeptStats, report: ReportLoss
    ) -> None:
        """``broker_log`` reads and fences; batches are sent as their client's principal."""
        self._cluster = cluster
        self._broker_log = broker_log
        self._stats = stats
        self._report = report
        self._last: dict[KeptPartition, trio.Event] = {}
        self._config = config
        #: Batches are decompressed beside the loop, one at a time.
        self._converting = trio.CapacityLimiter(1)
        #: Logs are read by so many at a time, for all clients.
        self._reads = trio.CapacityLimiter(config.recovery_concurrency)

    def queue(self, ask: RepairRequest) -> Callable[[], Awaitable[CoordinatorAnswer]]:
        """Repairs a request; its place in the order is that of this call."""
        # what its client has a success for comes last: else one that always repeats all of it would get no further
        wrong = sorted(ask.call.wrong or (), key=lambda one: is_told(one[0].batch, one[0].partition))
        turns = []
        for part, told in wrong[:MOST_AT_ONCE]:
            before, mine = self._last.get(part.partition), trio.Event()
            self._last[part.partition] = mine
            turns.append((part, told, before, mine))
        return partial(self._run, ask, turns, [part for part, _ in wrong[MOST_AT_ONCE:]])

    async def _run(
        self,
        ask: RepairRequest,
        turns: list[tuple[KeptPart, Told, trio.Event | None, trio.Event]],
        put_off: list[KeptPart],
    ) -> ProduceResponse:
        told = {part.key: _LATER for part in put_off}

        async def one(part: KeptPart, first: Told, before: trio.Event | None, mine: trio.Event) -> None:
            if before is not None:
                await before.wait()
            told[part.key] = await self._repair(ask, part, places.get(part.key), first, pool)

        pool = self._cluster.new_pool(ask.principal)
        try:
            with trio.move_on_after(ask.call.timeout_ms / 1000):
                places = await self._places([part for part, *_ in turns], by_id=ask.call.version >= FIRST_TOPIC_ID)
                async with trio.open_nursery() as nursery:
                    for turn in turns:
                        nursery.start_soon(one, *turn)
        finally:
            pool.close()
            ask.call.finish()
            for part in put_off:
                part.partition.ends(part.batch.sequence, refused=True, arrival=part.batch.arrival)
            for part, _, _, mine in turns:
                answer = told.get(part.key)
                refused = answer is None or bool(answer.error_code)
                if answer is None or _is_open(answer):
                    part.partition.doubts(part.batch.epoch, part.batch.sequence)
                part.partition.ends(part.batch.sequence, refused=refused, arrival=part.batch.arrival)
                mine.set()
                if self._last.get(part.partition) is mine:
                    del self._last[part.partition]
        for part, _, _, _ in turns:
            self._note(ask, part, told.setdefault(part.key, _NO_TIME))
        replace_rows(ask.response, ask.call.version, told)
        return ask.response

    def _note(self, ask: RepairRequest, part: KeptPart, told: Told) -> None:
        stats, batch = self._stats, part.batch
        stats.repairs[told.cause] = stats.repairs.get(told.cause, 0) + 1
        missing = told.lost
        if not told.error_code:
            part.partition.answers(batch.epoch, ask.call.flow, ask.call.nth)
            part.partition.finds(batch.epoch, told.end)  # not before: the client of one that is cancelled repeats it
            missing = part.partition.written(
                batch.epoch, batch.sequence, batch.records, told.base_offset, is_found=told.cause == FOUND_OLDER
            )
        report_missing(part, missing, self._report)

    async def _places(self, parts: Sequence[KeptPart], *, by_id: bool) -> dict[TrackKey, TopicPartition]:
        """The partitions by their topics' names, and their leaders learnt: each topic is asked for once.

        Those that cannot be asked for are left out.
        """
        places: dict[TrackKey, TopicPartition] = {}
        metadata = self._cluster.metadata
        try:
            refs = dict.fromkeys(part.key[0] for part in parts)
            names = {ref: await self._broker_log.place_of((ref, 0), by_id=by_id) for ref in refs}
            for part in parts:
                found = names[part.key[0]]
                if found is not None:
                    places[part.key] = found[0], part.key[1]
            unknown = [place for place in places.values() if metadata.leader(place) is None]
            if unknown:
                await metadata.learn(unknown)
        except (OSError, RemoteProtocolError) as error:
            log.warning("the leaders of partitions cannot be learnt", reason=str(error))
        return places

    async def _repair(
        self, ask: RepairRequest, part: KeptPart, place: TopicPartition | None, first: Told, pool: Pool
    ) -> Told:
        try:
            if place is None:
                return _UNREACHABLE
            steps = repair(part.batch, part.partition, first, ask.call.connection)
            step = next(steps)
            while True:
                step = steps.send(await self._perform(ask, part, place, step, pool))
        except StopIteration as done:
            told: Told = done.value
            return told
        except (OSError, RemoteProtocolError) as error:
            log.warning("an error about a producer's sequences cannot be looked into", reason=str(error))
            return _UNREACHABLE

    async def _perform(
        self, ask: RepairRequest, part: KeptPart, place: TopicPartition, step: Step, pool: Pool
    ) -> object:
        match step:
            case Look(producer_ids):
                end, active = (await self._broker_log.survey([place]))[place]
                seen = {one: active[one] for one in producer_ids if one in active}
                return LeaderView({one: Remembered(row.epoch, row.last_sequence) for one, row in seen.items()}, end)
            case Find(producer_ids, since):
                async with self._reads:
                    return await self._find(part, place, producer_ids, since)
            case FindRecords():
                async with self._reads:
                    return await self._find_records(ask, part, place, step)
            case Check():
                async with self._reads:
                    return await self._broker_log.is_lost(place, step.offset, step.is_met)
            case FenceOff(producer_id, epoch):
                await self._broker_log.fence([place], [(producer_id, epoch)])
                return None
            case Send(producer_id, left_out):
                data = await self._stamped(ask, part, producer_id, left_out)
                return await self._send(ask, part, place, data, pool)

    async def _find(
        self, part: KeptPart, place: TopicPartition, producer_ids: tuple[int, ...], since: int
    ) -> int | None:
        batch, depth = part.batch, self._broker_log.retries_depth
        newest = producer_ids[-1]  # the leader may have forgotten it
        surveyed = {place: (0, {newest: ActiveProducer(newest, batch.epoch, -1, -1)})}
        found = await self._broker_log.tails(
            [place], set(producer_ids), floors={place: since}, surveyed=surveyed, depth=depth
        )
        for one in found[place]:
            header = one.header
            if header.producer_epoch == batch.epoch and one.last_sequence == batch.last:
                return header.base_offset if header.base_sequence == batch.sequence else -1
        return None

    async def _find_records(
        self, ask: RepairRequest, part: KeptPart, place: TopicPartition, step: FindRecords
    ) -> FoundRecords:
        batch, since = part.batch, step.since
        found = await self._last_few(part, place, step)
        older = [one for one in found if one.header.producer_epoch <= batch.epoch and one.next_offset > since]
        own, read = await self._read(ask, part, older)
        numbered: dict[int, Digest] = {}
        log: list[OldRecord] = []
        for (header, _), (digests, offsets) in zip(older, read, strict=True):
            for at, one in zip(offsets, digests, strict=True):
                if header.producer_epoch == batch.epoch:
                    numbered[advance(header.base_sequence, at - header.base_offset)] = one
                if at >= since:
                    log.append(OldRecord(at, one))
        return FoundRecords(count_written(own, batch.sequence, step.last, numbered), align(own, log))

    async def _last_few(self, part: KeptPart, place: TopicPartition, step: FindRecords) -> Sequence[Batch]:
        """The last batches of a producer, whichever of its ids they are under, in the order of the log."""
        newest = step.producer_ids[-1]  # the leader may have forgotten it
        known = {one: ActiveProducer(one, state.epoch, state.last, -1) for one, state in step.seen.states.items()}
        known.setdefault(newest, ActiveProducer(newest, part.batch.epoch, -1, -1))
        floors, ids = {place: step.floor}, set(step.producer_ids)
        found = await self._broker_log.tails(
            [place], ids, floors=floors, known={place: (step.seen.end, known)}, depth=_LAST_FEW, together=newest
        )
        return found[place]

    async def _read(
        self, ask: RepairRequest, part: KeptPart, batches: Sequence[Batch]
    ) -> tuple[Digests, list[tuple[Digests, Sequence[int]]]]:
        """The records of the client's batch, and those of batches in the log, with their offsets."""
        if not batches:
            return Digests(), []
        reading = LogReading(self._config.decompression_max_bytes, self._converting, as_sent=True)
        found: dict[int, tuple[Digests, Sequence[int]]] = {}
        own = bytes(memoryview(ask.call.frame)[part.start : part.end])
        for nth, data in enumerate((own, *(one.data for one in batches))):
            reading.take(data, partial(_put, found, nth))
        await reading.finish()
        return found[0][0], [found[nth] for nth in range(1, len(found))]

    async def _stamped(self, ask: RepairRequest, part: KeptPart, producer_id: int, left_out: int) -> memoryview:
        if not left_out:
            return restamp(ask.call, part, producer_id)
        size = part.end - part.start
        steps = part.batch.records * READ_RECORD_STEPS + size // RECORD_SET_BYTES_IN_STEP
        most = self._config.decompression_max_bytes
        return await done(steps, partial(rest_of, ask.call, part, producer_id, left_out, most))

    async def _send(
        self, ask: RepairRequest, part: KeptPart, place: TopicPartition, data: memoryview, pool: Pool
    ) -> Told:
        by_id = ask.call.version >= FIRST_TOPIC_ID
        try:
            broker = await self._cluster.metadata.find(place)
        except NoLeader as error:
            return Told(error.error_code or ErrorCode.LEADER_NOT_AVAILABLE, cause="unreachable")
        row = None
        try:
            async with pool.to(broker.address) as client:
                row = await send_batch(client, part.key, data, ask.call.timeout_ms, by_id=by_id)
        finally:
            if row is None or row.error_code:
                self._cluster.metadata.forget(place)
        if row is None:
            raise RemoteProtocolError("a Produce response names no partition")
        return Told(row.error_code, row.base_offset, row.log_append_time_ms)


def _put(found: dict[int, tuple[Digests, Sequence[int]]], nth: int, digests: Digests, offsets: Sequence[int]) -> None:
    found[nth] = digests, offsets


def _is_open(told: Told) -> bool:
    """Whether a batch may have been written, though its client has to send it again."""
    return told.cause == _UNREACHABLE.cause or outcome_of(told.error_code) is ProduceOutcome.OPEN
