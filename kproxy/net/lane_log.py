"""The lane log: which producer has which producer id, noted before its first use, read by the next kproxy.

Beside these it has the epochs that stand for clients of ``broker-fenced`` at the broker (``txn.stored_epochs``).

The compacted topic ``__kproxy_producer_state`` is kproxy's only memory beyond its process. It needs no disk, so a
killed kproxy may come back on any machine. Entries that are in use are written again before they expire; what an
instance has left that never returns ends with its last entries (``dedup.lane_retention``).
"""

from collections.abc import Awaitable, Callable, Set
from math import inf

import structlog
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.retry_options import RetryOptions
from kproxy.dedup.former_lanes import FormerLanes, newest_lists
from kproxy.dedup.identity import Identity
from kproxy.dedup.instance_holder import BELL_BYTES, HolderChanges
from kproxy.dedup.lane_record import LaneKey, LaneRecord, encode_key, encode_value
from kproxy.dedup.lane_retention import Retention
from kproxy.dedup.listed import InDoubt
from kproxy.dedup.producer_ids import LAST_EPOCH, LEASE_EPOCHS
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import LATEST, fetch
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.instance_name import InstanceName, Notes
from kproxy.net.lane_ages import LaneAges
from kproxy.net.lane_renewals import Renewals
from kproxy.net.lane_topic import TOPIC, lane_topic, partition_of
from kproxy.net.lane_writer import Fenced, LaneWriter
from kproxy.net.own_topic import Refused, TopicDeleted, check
from kproxy.net.topic_reader import TopicReader
from kproxy.single_flight import SingleFlight
from kproxy.txn.stored_epochs import StoredEpoch, StoredEpochs, is_stored_epoch
from kproxy.txn.stored_epochs import encode_key as encode_epoch_key
from kproxy.txn.stored_epochs import encode_value as encode_epoch

log = structlog.get_logger("kproxy.lane_log")

#: A start that takes longer is logged.
_PATIENCE_SECONDS = 10.0
#: How long a look for other processes of this name waits at the broker. A process that is cut off, and so does not
#: receive the response, looks again after this and ``upstream.request.timeout.ms``.
_WATCH_MS = 60_000
#: So often within a retry window lists are looked through: there may be thousands.
_LOOKS = 8
#: A process that stops does not wait longer for its last note: the next one then asks whether it is alive.
_STOP_SECONDS = 1.0


class LaneLog:
    """This instance's part of the log. If the cluster refuses it, kproxy continues without crash recovery."""

    def __init__(self, cluster: Cluster, config: RetryOptions, *, replaces: bool = False) -> None:
        """Nothing is made or read where ``crash_recovery_enable`` or ``idempotence_enable`` is false.

        ``replaces``: takes over from another process with this ``instance_id`` that is alive.
        """
        self._cluster = cluster
        self._config = config
        self._topic = lane_topic(cluster, config)
        #: How long entries count.
        self.retention = Retention(config.producer_state_log_retention_ms)
        self._renewals = Renewals(self.retention, self._put)
        self._epochs = StoredEpochs(config.instance_id)
        #: Which process may write this instance's entries.
        self.name = InstanceName(cluster, config, replaces=replaces)
        self._former = FormerLanes(
            config.instance_id.__eq__,
            others=lambda record: self._epochs.take(record) or self.name.holders.take(record),
        )
        changes = HolderChanges(lambda instance_id: self._elsewhere.leave(instance_id))
        self._elsewhere = FormerLanes(
            config.instance_id.__ne__, others=lambda record: is_stored_epoch(record) or changes.take(record)
        )
        #: Of the partitions, once they are known.
        self._readers: dict[TopicPartition, TopicReader] = {}
        self._look = SingleFlight(self._read_all)
        #: Of this instance's partition; None until it has been read once.
        self._own: TopicReader | None = None
        self._look_at_own = SingleFlight(self._read_own)
        #: Whether lanes are noted; False once the cluster has refused it.
        self.enabled = config.crash_recovery_enable and config.idempotence_enable
        #: Set when the former self's lanes are known, as far as they can be.
        self.opened = trio.Event()
        self._opened_ms = 0
        #: When lists were last forgotten (ms since 1970).
        self._tidied_ms = 0
        #: With connections of its own, because what waits for all replicas would hold up kproxy's other requests.
        self._leaders = Leaders(cluster, config)
        self._ages = LaneAges(self.retention, self._leaders, cluster.network.wall)
        self._writer: LaneWriter | None = None
        #: Of the entry that was put last: entries are written in order.
        self._newest_put: trio.Event | None = None

    async def open(self, nursery: trio.Nursery) -> None:
        """Finds or makes the topic, reads the former self's lanes, starts the writer in ``nursery``.

        Tries for as long as it takes: a kproxy that stamps without knowing them would let their retries through.
        InstanceTaken: another process with this instance.id is alive. Once it is open, the nursery ends with
        InstanceTaken when another process takes over.
        """
        if self.enabled:
            try:
                writer = await self._until_claimed()
            except Refused as refused:
                self._give_up(refused)
            else:
                self._drop_copies()
                self._former.expire(self._ages.since_ms)
                self._former.complete()
                self._tell(self._former)
                self._writer = writer
                self._inherit()
                self.name.note(self._notes)
                nursery.start_soon(self._write)
                nursery.start_soon(self._watch)
        self._opened_ms = self.now_ms()
        self.opened.set()

    @property
    def topic_id(self) -> bytes:
        """The id of the topic, which no client learns; empty if it has none, or is not used."""
        return self._topic.topic_id if self._writer is not None else b""

    async def _until_claimed(self) -> LaneWriter:
        while True:
            place = await self._until_read()
            writer = LaneWriter(self._cluster, self._config, self._leaders, place, self._ages.saw)
            try:
                await self.name.claim(writer, self._look_at_own)
                return writer
            except TopicDeleted:
                self._cluster.count_error("producer_state_log")

    def _drop_copies(self) -> None:
        """Forgets what was copied from another cluster: nobody wrote under these producer ids here."""
        if self.name.copied_from is not None:
            self._epochs.clear()
            log.warning(
                "the entries of this instance were copied from another cluster, and are not used",
                topic=TOPIC,
                cluster_id=self.name.copied_from,
                served=self._cluster.identity.cluster_id,
                producer_ids=len(self._former.take_all()),
            )

    async def _until_read(self) -> TopicPartition:
        backoff, began, logged = Backoff(self._config), trio.current_time(), False
        place: TopicPartition | None = None
        reader: TopicReader | None = None
        while True:
            try:
                if place is None or reader is None:
                    place = await self._find()
                    reader = await self._reader(place)
                await reader.read()
                self._own = reader
                return place
            except (OSError, RemoteProtocolError) as error:
                self._cluster.count_error("producer_state_log")
                if isinstance(error, TopicDeleted):
                    place = reader = None
                if not logged and trio.current_time() > began + _PATIENCE_SECONDS:
                    logged = True
                    log.warning("waiting for the log of producer ids; no records are accepted before", error=str(error))
            await backoff.pause()

    async def _find(self) -> TopicPartition:
        return TOPIC, partition_of(self._config.instance_id, await self._prepared())

    async def _prepared(self) -> int:
        partitions = await self._topic.prepare()
        self.retention.adopt(self._topic.settings)
        return partitions

    async def _reader(self, place: TopicPartition) -> TopicReader:
        starts = await self._ages.starts(await self._ages.offsets([place], LATEST))
        return TopicReader(self._leaders, place, self._former, starts.get(place))

    def _inherit(self) -> None:
        """Keeps the epochs of the former self's clients, which may come back long after kproxy has."""
        for name, stored, appended_ms in self._epochs:
            age_s = self._ages.age_s(appended_ms)
            if self.retention.expires and age_s * 1000 >= self.retention.period_ms:
                continue  # kproxy was away for longer than it counts
            key, value = encode_epoch_key(self._config.instance_id, name), encode_epoch(stored)
            self._renewals.inherit(key, value, age_s)

    def _tell(self, former: FormerLanes) -> None:
        log.info("former producer ids read", instance_id=self._config.instance_id, producer_ids=len(former))
        if former.newer or former.damaged:
            log.warning(
                "entries that this kproxy does not understand are kept and not used: retries of records sent under "
                "them may become duplicates",
                topic=TOPIC,
                newer=former.newer,
                damaged=former.damaged,
            )
        if former.dropped:
            log.warning(
                "more former producer ids than are kept in memory; the oldest are not used", count=former.dropped
            )

    def _give_up(self, refused: Refused) -> None:
        self.enabled = False
        self._cluster.count_error("producer_state_log_refused")
        self._topic.warn_of_refusal(refused)

    # -- what the former self had

    def former(self, identity: Identity) -> list[LaneRecord]:
        """The lanes that this producer had under the former self; empty once ``forget`` has run."""
        return self._former.of(identity, self._ages.since_ms)

    def former_lists(self, identity: Identity) -> dict[str, InDoubt]:
        """What the former self had in doubt of this producer; no time has passed while kproxy was away."""
        return {name: told.moved_to(self._opened_ms) for name, told in newest_lists(self.former(identity)).items()}

    @property
    def newest_list_ms(self) -> int:
        """The time of the former self's newest list: what this one writes has to be newer."""
        return self._former.newest_list_ms

    def elsewhere(self, identity: Identity) -> list[LaneRecord]:
        """The lanes that this producer has or had at other instances, as they were at the last ``look``."""
        return self._elsewhere.of(identity, self._ages.since_ms)

    @property
    def known(self) -> Set[Identity]:
        """The producers that have or had lanes under the former self, or at other instances."""
        return self._former.identities | self._elsewhere.identities

    @property
    def listed(self) -> int:
        """About how many bytes of memory the lists of what others, or the former self, had in doubt take."""
        return self._former.listed + self._elsewhere.listed

    def forget_lists(self) -> None:
        """Frees what other instances listed a retry window ago; called every now and then.

        Only a ``look`` reads newer lists, and an instance without clients does not look.
        """
        now_ms, window_ms = self.now_ms(), self._config.retry_window_ms
        if abs(now_ms - self._tidied_ms) * _LOOKS >= window_ms:
            self._tidied_ms = now_ms
            self._elsewhere.forget_lists(now_ms - window_ms)

    async def look(self) -> None:
        """Returns when all entries have been read that any instance had written before the call."""
        await self._until_done(self._look)

    async def _until_done(self, read: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff(self._config)
        while self.enabled:
            try:
                await read()
                return
            except Refused as refused:
                self._give_up(refused)
            except (OSError, RemoteProtocolError):
                self._cluster.count_error("producer_state_log")
            await backoff.pause()

    async def _read_all(self) -> None:
        places = list(self._readers) or [(TOPIC, index) for index in range(await self._prepared())]
        ends = await self._ages.offsets(places, LATEST)  # what has not grown since is not read
        if not self._readers:
            starts = await self._ages.starts(ends)
            self._readers = {
                place: TopicReader(self._leaders, place, self._elsewhere, starts.get(place)) for place in places
            }
        for place, end in ends.items():
            await self._readers[place].read_to(end)
        self._elsewhere.expire(self._ages.since_ms)

    async def _read_own(self) -> None:
        assert self._own is not None
        await self._own.read()
        self._epochs.expire(self._ages.since_ms)

    async def epochs(self) -> StoredEpochs:
        """The epochs that stand for this instance's clients, as they are now; none where nothing is noted."""
        await self.opened.wait()
        await self._until_done(self._look_at_own)
        return self._epochs

    async def forget(self) -> list[LaneRecord]:
        """Ends the wait for the former process: its lanes that have epochs left are used again after their fences.

        Lanes without epochs are deleted from the log.
        """
        lanes = self._former.take_all(self._ages.since_ms)
        spent = [lane for lane in lanes if lane.last_epoch + 1 + LEASE_EPOCHS >= LAST_EPOCH]
        if self._writer is not None and self.enabled:
            for written in [self._put(encode_key(lane.key), None) for lane in spent]:
                await written.wait()
        return [lane for lane in lanes if lane.last_epoch + 1 + LEASE_EPOCHS < LAST_EPOCH]

    # -- writing

    async def record(self, record: LaneRecord) -> None:
        """Returns when all in-sync replicas have the entry, or at once where there is no crash recovery.

        It is renewed until ``put`` or ``leave``.
        """
        await self.opened.wait()
        written = self.keep(record)
        if written is not None:
            await written.wait()

    def keep(self, record: LaneRecord) -> trio.Event | None:
        """As ``record``, once the log is ``opened``, for a caller that need not wait. None: nothing is noted."""
        if self._writer is None or not self.enabled:
            return None
        return self._keep(encode_key(record.key), encode_value(record))

    async def written(self) -> None:
        """Returns when all in-sync replicas have all entries that were put, or at once where nothing is noted."""
        if self._newest_put is not None:
            await self._newest_put.wait()

    @property
    def is_written(self) -> bool:
        """Whether ``written`` would return at once."""
        return self._newest_put is None or self._newest_put.is_set()

    def put(self, record: LaneRecord) -> None:
        """Takes an entry for which nobody has to wait, and which is not renewed."""
        self.leave(record.key)
        if self._writer is not None and self.enabled:
            self._put(encode_key(record.key), encode_value(record))

    def leave(self, key: LaneKey) -> None:
        """Lets an entry expire, which is as it has to be until then."""
        self._renewals.drop(encode_key(key))

    def put_epoch(self, transactional_id: str, stored: StoredEpoch | None) -> trio.Event:
        """Takes the entry of an id, or deletes it; set when all in-sync replicas have it, or nothing is noted.

        To be called only once the log is ``opened``, and ``enabled``. It is renewed until it is deleted.
        """
        key = encode_epoch_key(self._config.instance_id, transactional_id)
        if stored is not None:
            return self._keep(key, encode_epoch(stored))
        self._renewals.drop(key)
        return self._put(key, None)

    def renew(self) -> None:
        """Writes again what is due; to be called every ``retention.pause_s``."""
        if self.enabled:
            self._renewals.renew(is_due=True)

    def usable_until(self, key: LaneKey) -> float:
        """Until when (trio's clock) a lane may be used: its entry counts for ``retry.window.ms`` longer."""
        return self._renewals.usable_until(encode_key(key)) if self.enabled else inf

    # -- which process has the name

    @property
    def _notes(self) -> Notes:
        return Notes(self._look_at_own, self._wait, self._keep, self._put)

    async def _wait(self) -> bool:
        own = self._own
        assert own is not None
        wish = {own.place: (own.offset, BELL_BYTES)}
        told = await self._leaders.once(own.place, fetch(wish, BELL_BYTES, _WATCH_MS, BELL_BYTES))
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return True
        check("Fetch", TOPIC, told.error_code)
        return bool(told.get(own.place, "Fetch").records)

    async def _watch(self) -> None:
        try:
            await self.name.watch(self._notes)
        except Refused as refused:
            self._give_up(refused)

    async def stop(self) -> None:
        """Notes that this process writes nothing any more, so that the next one need not ask; in 1 s at most."""
        last = self.name.stop() if self._writer is not None and self.enabled else None
        if last is not None:
            self._renewals.drop(last[0])
            with trio.move_on_after(_STOP_SECONDS):
                await self._put(*last).wait()

    def _keep(self, key: bytes, value: bytes) -> trio.Event:
        written = self._put(key, value)
        self._renewals.keep(key, value, written)
        return written

    def _put(self, key: bytes, value: bytes | None) -> trio.Event:
        assert self._writer is not None
        self._newest_put = self._writer.put(key, value, self.now_ms())
        return self._newest_put

    def has_epochs_before(self, recorded_ms: int) -> bool:
        """Whether an entry of an epoch, as last read, was written before a time; what was written since is newer."""
        return bool(self._epochs.before(recorded_ms))

    def now_ms(self) -> int:
        """This machine's time, in ms since 1970."""
        return int(self._cluster.network.wall() * 1000)

    async def _write(self) -> None:
        writer = self._writer
        assert writer is not None
        fenced: Fenced | None = None
        try:
            while True:
                try:
                    if fenced is not None:
                        await self.name.claim(writer, self._look_at_own, fresh=fenced.is_lost)
                        self.name.note(self._notes)
                    await writer.run()
                except Fenced as error:
                    if self.name.stopped:
                        return  # the next process has begun
                    fenced = error
                except TopicDeleted:
                    log.warning(
                        "topic was deleted, and with it what a restarted kproxy would know; creating it again, with "
                        "what is in use",
                        topic=TOPIC,
                    )
                    writer.place = await self._find_again()
                    self._own = TopicReader(self._leaders, writer.place, self._former)
                    self._renewals.renew(is_due=False)
                    fenced = Fenced(is_lost=True)
        except Refused as refused:
            self._give_up(refused)
            writer.release()

    async def _find_again(self) -> TopicPartition:
        while True:
            await trio.sleep(self._config.retry_backoff_max_ms / 1000)  # brokers need a moment to learn of a new topic
            try:
                return await self._find()
            except (OSError, RemoteProtocolError):
                self._cluster.count_error("producer_state_log")

    def close(self) -> None:
        """Closes the connection to the log's leader; other processes see that this one has ended."""
        self._leaders.close()
        self.name.close()
