"""The unconfirmed batches of a producer, and the reads from brokers' logs that recognizing retries needs."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.retry_options import RetryOptions
from kproxy.config.values import AUTO
from kproxy.dedup.digest import Digests
from kproxy.dedup.identity import Identity, normal_host
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.listed import InDoubt, listed
from kproxy.dedup.origin import Origin, Software
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.retry_ledger import FoundBatch, LookElsewhere, Prerequisite, ReadBack, Recover, RetryLedger
from kproxy.dedup.retry_ledgers import RetryLedgers
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import UnconfirmedBatch, Wire
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log import Batch, BrokerLog
from kproxy.net.broker_log_batches import last_batches
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.end_watch import EndWatch
from kproxy.net.lane_leases import Lanes
from kproxy.net.log_reading import LogReading
from kproxy.net.network import ByteIO
from kproxy.net.read_backs import ReadBacks, is_of
from kproxy.net.recovery import Recovery
from kproxy.proxy.permits import is_listed
from kproxy.proxy.retry_stats import RetryStats

if TYPE_CHECKING:
    from kproxy.codec.batch import BatchHeader

log = structlog.get_logger("kproxy.doubts")

T = TypeVar("T")

_TOPIC_ID_SIZE = 16
#: A connection whose response is not acknowledged for so long has ended: its client may retry over another one, and
#: a retry is compared with batches of connections that have ended. Shorter than the time-outs of most clients (30 s).
#: Not for consumers, which may have reasons not to read for so long.
_UNACKNOWLEDGED_MS = 20_000
#: clean.close.window.ms of clients of balancers, where it is not set.
_BALANCED_WINDOW_S = 10.0


@dataclass(slots=True)
class _Records:
    """Those of a batch, once they are read."""

    digests: Digests = field(default_factory=Digests)
    offsets: Sequence[int] = ()

    def put(self, digests: Digests, offsets: Sequence[int]) -> None:
        self.digests, self.offsets = digests, offsets


class RetryLedgerKeeper:
    """The ledger of one process, and its access to the logs."""

    def __init__(
        self, config: RetryOptions, stats: RetryStats, lanes: Lanes, broker_log: BrokerLog, nursery: trio.Nursery
    ) -> None:
        """``lanes`` knows what a former kproxy used; reads run in ``nursery``, even if the caller is cancelled."""
        self._config = config
        self._stats = stats
        self._lanes = lanes
        self.broker_log = broker_log
        #: What makes the time of the day of trio's clock, as connections have it.
        self._wall = broker_log.wall() - trio.current_time()
        self._recovery = Recovery(broker_log, config, stats)
        self._converting = trio.CapacityLimiter(1)
        self._reads = trio.CapacityLimiter(config.recovery_concurrency)
        self._nursery = nursery
        self._lot = trio.lowlevel.ParkingLot()
        #: Ledgers of which logs are being read, and what happens then.
        self._busy: dict[RetryLedger, trio.Event] = {}
        #: The same of connections that have ended, for which other instances' leases are being read.
        self._looking: dict[ProducerConnection, tuple[trio.CancelScope, trio.Event]] = {}
        #: Rises with each change, so that nobody waits for one that has happened already.
        self.version = 0
        rules = Rules(
            window=config.retry_window_ms / 1000,
            in_flight=None if config.clients_in_flight == AUTO else config.clients_in_flight,
            client_timeout=config.clients_request_timeout_ms / 1000,
            new_timestamps=config.clients_new_timestamps,
            connection_pools=config.clients_connection_pools,
            fleet=lanes.fleet.enabled,
        )
        self._ends = EndWatch()
        self._ledgers = RetryLedgers(
            rules,
            self._former,
            self._changed,
            self._ends.look,
            self._elsewhere,
            self._recent,
            self._lists,
            lambda: lanes.log.known,
        )
        lanes.in_doubt, lanes.is_unchanged = self._in_doubt, self._ledgers.rests

    def _former(self, identity: Identity) -> Sequence[Suspect]:
        return [
            Suspect(lane.producer_id, lane.epoch, lane.last_epoch, returned=lane.returned)
            for lane in self._lanes.log.former(identity)
            if not lane.says_all
        ]

    def _elsewhere(self, identity: Identity) -> Sequence[Suspect]:
        lanes = self._lanes.fleet.lanes(identity)
        shared = any(lane.is_held for lane in lanes) and self._lanes.fleet.is_shared(identity)
        return [
            Suspect(
                lane.producer_id,
                lane.epoch,
                lane.last_epoch,
                elsewhere=True,
                returned=lane.returned,
                recorded_at=lane.recorded_ms / 1000,
                says_all=lane.says_all,
                shared=shared and lane.is_held,
            )
            for lane in lanes
        ]

    def _recent(self, identity: Identity) -> set[int]:
        return {lane.producer_id for lane in self._lanes.fleet.lanes(identity)}

    def _lists(self, identity: Identity) -> dict[str, InDoubt]:
        return {**self._lanes.fleet.lists(identity), **self._lanes.log.former_lists(identity)}

    def _in_doubt(self, identity: Identity) -> InDoubt:
        now = trio.current_time() + self._wall
        return listed(self._ledgers.in_doubt(identity, now), int(now * 1000))

    def join(
        self, identity: Identity, wire: Wire, client: ByteIO, since: float, software: Software
    ) -> ProducerConnection:
        """A new connection of a producer, opened at ``since`` (seconds)."""
        client.limit_unacknowledged(_UNACKNOWLEDGED_MS)
        member = self._ledgers.join(identity, wire, since, Origin(software, self._clean_window(client)))
        client.watch_end(self._ends, member.end)
        return member

    def _clean_window(self, client: ByteIO) -> float:
        """The seconds for which an end in good order proves nothing, since something ends TCP before the client."""
        window = self._config.clean_close_window_ms
        if window == AUTO:
            return _BALANCED_WINDOW_S if client.balanced else 0.0
        hosts = self._config.clean_close_window_hosts
        declared = client.balanced or not hosts or is_listed(normal_host(client.peer_host), hosts)
        return window / 1000 if declared else 0.0

    async def changed(self, seen: int) -> None:
        """Waits for a change after ``version`` ``seen``: the outcome of a batch became known, or records were read."""
        if self.version == seen:
            await self._lot.park()

    def _changed(self) -> None:
        self.version += 1
        self._lot.unpark_all()

    def sweep(self, now: float) -> None:
        """Forgets what no client can repeat any more; called every now and then."""
        self._ends.look(now)
        self._lanes.log.forget_lists()  # a producer of which another instance lists a batch does not rest
        dropped = self._ledgers.sweep(now)
        self.list_again()
        self._ledgers.rest(now, self._busy)  # only now: what is in doubt of them is listed
        self._stats.in_doubt = self._ledgers.unconfirmed
        self._stats.memory_bytes = self._ledgers.size + self._lanes.log.listed
        if dropped:
            self._count_failure("too_many", dropped)

    def list_again(self) -> None:
        """Has other processes learn what is in doubt now, where that has changed."""
        self._lanes.list_again(self._ledgers.in_question())

    @property
    def size(self) -> int:
        """The approximate bytes of memory that unconfirmed batches took when they were last swept."""
        return self._ledgers.size

    def counts(self) -> dict[Identity, int]:
        """The number of unconfirmed batches of each producer, where there are some."""
        return self._ledgers.counts()

    def look(self, member: ProducerConnection, prerequisite: Prerequisite, now: float) -> trio.Event:
        """Begins to remove what hinders a request, unless something is being done for its producer; what happens then.

        What can't be read is taken as new and counted: no record is lost for it.
        """
        if isinstance(prerequisite, LookElsewhere):
            # not in turn with the others: the log may not be readable, and live connections need not wait for that
            if member not in self._looking:
                scope, done = self._looking[member] = trio.CancelScope(), trio.Event()
                self._nursery.start_soon(self._look_elsewhere, member, scope, done)
            return self._looking[member][1]
        if member.ledger not in self._busy:
            self._busy[member.ledger] = trio.Event()
            self._nursery.start_soon(self._look, member.ledger, prerequisite, now)
        return self._busy[member.ledger]

    def look_ahead(self, member: ProducerConnection, now: float) -> None:
        """Reads back what was not told in good order: before its retry comes, or compaction does."""
        left = (entry for entries in member.ledger.entries.values() for entry in entries)
        entries = [entry for entry in left if entry.digests is None and not entry.clean]
        if entries:
            self.look(member, ReadBack(entries), now)

    async def _look(self, ledger: RetryLedger, prerequisite: Prerequisite, now: float) -> None:
        try:
            if isinstance(prerequisite, Recover):
                await self._recover(ledger, prerequisite, now)
            elif isinstance(prerequisite, ReadBack):
                await self._read_back(ledger, prerequisite.entries)
        finally:
            self._busy.pop(ledger).set()
            self._changed()

    async def _look_elsewhere(self, member: ProducerConnection, scope: trio.CancelScope, done: trio.Event) -> None:
        try:
            with scope:
                await self._lanes.log.look()
                member.ledger.looked_elsewhere(member)
        finally:
            self._looking.pop(member, None)
            done.set()

    def left(self, member: ProducerConnection) -> None:
        """Ends what was begun for a connection of which no request waits any more."""
        looking = self._looking.pop(member, None)
        if looking is not None:
            looking[0].cancel()

    def warn_of_untimed(self, member: ProducerConnection, key: TrackKey) -> None:
        """Logs, with the name of the topic, that a record was matched without an equal timestamp."""
        self._nursery.start_soon(self._warn_of_untimed, member.ledger.identity, key)

    async def _warn_of_untimed(self, identity: Identity, key: TrackKey) -> None:
        try:
            topic = await self._name(key[0])
        except (OSError, RemoteProtocolError):
            topic = None
        log.warning(
            "a record was taken for a retry without an equal timestamp: answered, not written. Further ones of this "
            "producer are only counted (kproxy_records_matched_untimed_total). If it sends equal records, give each "
            "program a client.id of its own, and use a client that sends timestamps",
            client_id=identity.client_id,
            host=identity.host,
            topic=topic or key[0].hex(),
            partition=key[1],
        )

    # -- lanes of the past

    async def _recover(self, ledger: RetryLedger, recover: Recover, now: float) -> None:
        found: list[tuple[TrackKey, BatchHeader, bool, _Records]] = []
        reading = self._log_reading()
        left: dict[TopicPartition, TrackKey] = {}
        missing: dict[TopicPartition, int] = {}
        unfenced: dict[TrackKey, int] = {}
        try:
            left.update(await self._persistently(partial(self._places, recover.keys)))
            unfenced.update(dict.fromkeys(set(recover.keys).difference(left.values()), ErrorCode.UNKNOWN_TOPIC_ID))

            def take(place: TopicPartition, batches: list[Batch]) -> None:
                key, last = left.pop(place), last_batches(batches)
                for batch in batches:
                    header = batch.header
                    if not header.is_control:
                        records = _Records()
                        found.append((key, header, header.base_offset in last, records))
                        reading.take(batch.data, records.put)

            async def read() -> None:
                missing.clear()
                await self._recovery.recover(recover.lanes, list(left), take, missing, reading.finish)

            await self._persistently(read)
        except (OSError, RemoteProtocolError) as error:
            self._count_failure("recovery", len(left) - len(missing) or len(recover.keys))
            log.warning(
                "records of a former kproxy can't be looked for: retries may become duplicates", error=str(error)
            )
        unfenced.update((left[place], error) for place, error in missing.items())
        ledger.missing(unfenced)
        fenced = replace(recover, keys=[key for key in recover.keys if key not in unfenced])
        batches = (FoundBatch(key, header, one.digests, one.offsets, is_last) for key, header, is_last, one in found)
        ledger.recovered(fenced, batches, now)

    def _log_reading(self) -> LogReading:
        return LogReading(self._config.decompression_max_bytes, self._converting)

    async def _places(self, keys: Iterable[TrackKey]) -> dict[TopicPartition, TrackKey]:
        """The partitions by the names that their logs are read by; deleted topics are left out."""
        keys = list(keys)
        names = await self._names(keys)
        return {(name, key[1]): key for key in keys if (name := names[key[0]]) is not None}

    async def _names(self, keys: Iterable[TrackKey]) -> dict[bytes, str | None]:
        """The names of topics; None for deleted ones."""
        return {topic: await self._name(topic) for topic in dict.fromkeys(topic for topic, _ in keys)}

    async def _name(self, topic: bytes) -> str | None:
        # a name of 16 bytes may look like an id: ids are asked for, and what is no id is a name
        if len(topic) == _TOPIC_ID_SIZE:
            known = await self.broker_log.topic_name(topic)
            if known is not None:
                return known
        try:
            return topic.decode()
        except UnicodeDecodeError:
            return None

    # -- batches whose place is known

    async def _read_back(self, ledger: RetryLedger, entries: Iterable[UnconfirmedBatch]) -> None:
        unread = [entry for entry in entries if entry.digests is None]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_placed, ledger, [entry for entry in unread if entry.stamp.base_offset >= 0])
            for entry in unread:
                if entry.stamp.base_offset < 0:
                    nursery.start_soon(self._read_entry, ledger, entry)
        self._ledgers.grew(sum(entry.size for entry in unread))
        self._ledgers.bound_growth()

    async def _read_placed(self, ledger: RetryLedger, entries: Sequence[UnconfirmedBatch]) -> None:
        """Reads entries whose offset is known: those of a leader together, each taken as soon as it is there."""
        reads = ReadBacks(self.broker_log, self._log_reading(), self._count_failure, self.cut)

        async def read() -> None:
            async with self._reads:
                await reads.read()

        try:
            names = await self._persistently(partial(self._names, [entry.key for entry in entries]))
            for entry in entries:
                topic, partition = entry.key
                name = names[topic]
                if name is not None:
                    reads.add((name, partition), entry)
            await self._persistently(read)
        except (OSError, RemoteProtocolError) as error:
            unread = len(reads) or len(entries)
            self._count_failure("unreadable", unread)
            log.warning(
                "batches can't be read back: their retries may become duplicates", count=unread, error=str(error)
            )
        for entry in entries:
            if entry.digests is None:
                ledger.forget(entry)

    def cut(self, key: TrackKey, offset: int) -> None:
        """Takes that a partition's log was cut: of what was acknowledged with this offset or later nothing is left."""
        self._ledgers.cut(key, offset)
        self._changed()

    async def _persistently(self, what: Callable[[], Awaitable[T]]) -> T:
        """Tries what brokers may not let be done just now, for ``delivery_timeout_ms``."""
        give_up = trio.current_time() + self._config.delivery_timeout_ms / 1000
        backoff = Backoff(self._config)
        while True:
            try:
                return await what()
            except OSError:
                if trio.current_time() >= give_up:
                    raise
            await backoff.pause()

    async def _read_entry(self, ledger: RetryLedger, entry: UnconfirmedBatch) -> None:
        try:
            batch = await self._persistently(partial(self._find, entry))
        except (OSError, RemoteProtocolError) as error:
            self._count_failure("unreadable", 1)
            log.warning("a batch cannot be read back: its retry may become a duplicate", error=str(error))
            batch = None
        if batch is None:
            ledger.forget(entry)
        else:
            reading = self._log_reading()
            reading.take(batch.data, entry.recall)
            await reading.finish()

    async def _find(self, entry: UnconfirmedBatch) -> Batch | None:
        """The batch of an entry of which the broker did not say where it is; None if it is in no tail."""
        topic = await self._name(entry.key[0])
        if topic is None:
            return None
        place = (topic, entry.key[1])
        async with self._reads:
            depth = self.broker_log.retries_depth
            batches = (await self.broker_log.tails([place], {entry.stamp.producer_id}, depth=depth))[place]
        for batch in batches:
            if is_of(batch, entry):
                return batch
        self._count_failure("gone", 1)
        return None

    def _count_failure(self, reason: str, count: int) -> None:
        failed = self._stats.readbacks_failed
        failed[reason] = failed.get(reason, 0) + count
