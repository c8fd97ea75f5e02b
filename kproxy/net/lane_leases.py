"""Which connection gets which lane: producer ids are requested from brokers, recorded before use, and reused."""

from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

import structlog
import trio

from kproxy.config.retry_options import RetryOptions
from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import LaneKey, LaneRecord
from kproxy.dedup.lanes import Lane, LanePool
from kproxy.dedup.listed import InDoubt
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.fleet import Fleet
from kproxy.net.lane_log import LaneLog
from kproxy.net.lane_topic import TOPIC
from kproxy.proxy.stats import Stats

log = structlog.get_logger("kproxy.lane_log")

#: More lanes at rest than this are given up: their producer ids are not used again before a restart.
_MOST_RESTING = 10_000
#: A list that would be so much older than the one before it was made after the clock had been set back.
_SET_BACK_MS = 1000


def _no_connection() -> None:
    """Ends nothing."""


class _Lease(NamedTuple):
    identity: Identity
    #: The first epoch of this producer id that was this identity's, over all its leases in a row.
    first_epoch: int
    #: When the present one was recorded, in ms since the epoch.
    recorded_ms: int = 0
    #: Ends the connection that has it.
    end: Callable[[], None] = _no_connection


class _Told(NamedTuple):
    """The entry that was written last of an identity."""

    lane: Lane
    #: Of its list (``InDoubt.mark``), and whether batches are in that.
    mark: bytes
    has_batches: bool


class _Rest(NamedTuple):
    identity: Identity
    #: As ``_Lease`` has them.
    first_epoch: int
    recorded_ms: int
    #: trio's clock, seconds.
    until: float
    #: Of the tracks that it had: the highest epoch, and how many they were.
    used_epoch: int = 0
    partitions: int = 0

    @property
    def lease(self) -> _Lease:
        """Its last one; a lane that rests keeps no connection in memory."""
        return _Lease(self.identity, self.first_epoch, self.recorded_ms)


class HeldLane(NamedTuple):
    """A lane that a producer has or may have again."""

    lane: Lane
    identity: Identity
    #: A connection has it now.
    is_leased: bool
    #: The highest epoch on any of its partitions, and how many it has.
    used_epoch: int
    partitions: int


class Lanes:
    """Leases lanes to connections, each for one identity.

    A lane that is given back rests for ``retry_window_ms``, and only its own identity may have it meanwhile: the log
    keeps one entry for each producer id, and another's would hide unconfirmed batches of the first from the next
    kproxy.
    """

    def __init__(self, cluster: Cluster, config: RetryOptions, stats: Stats, log: LaneLog) -> None:
        """``stats.upstream`` is not ready before the log is open."""
        self._cluster = cluster
        self._config = config
        self._stats, self._upstream = stats.produce, stats.upstream
        #: What the former self had; see ``LaneLog.former``.
        self.log = log
        self.fleet = Fleet(config, log, cluster.network.wall)
        self._pool = LanePool()
        self._leases: dict[Lane, _Lease] = {}
        #: The first to rest first.
        self._resting: dict[Lane, _Rest] = {}
        #: By producer; mostly a lane alone, since of these there may be many.
        self._resting_of: dict[Identity, Lane | dict[Lane, None]] = {}
        #: The first to be abandoned first. They are not used again. If the outcome of each batch is known, other
        #: instances learn after ``retry_window_ms`` that they are given back.
        self._abandoned: dict[Lane, _Rest] = {}
        #: What is in doubt of a producer; set by the part that knows it. None: that is not known.
        self.in_doubt: Callable[[Identity], InDoubt | None] = lambda _: None
        #: Whether what is in doubt of a producer is surely what was written last.
        self.is_unchanged: Callable[[Identity], bool] = lambda _: False
        self._told: dict[Identity, _Told] = {}
        self._list_ms = 0
        self._upstream.prepared = not log.enabled

    async def run(self) -> None:
        """Opens the log, then writes it for ever; after ``retry_window_ms`` the former self's lanes are given back."""
        try:
            async with trio.open_nursery() as nursery:
                await self.log.open(nursery)
                self._upstream.prepared = True
                nursery.start_soon(self._renew)
                await trio.sleep(self._config.retry_window_ms / 1000)
                for former in await self.log.forget():
                    # as if given back just now: the next lease begins after the epoch of its fence
                    lane = Lane(former.producer_id, former.epoch)
                    lane.last_epoch = former.last_epoch
                    self._pool.give_back(lane)
                    if not former.returned:  # other instances would fence it for ever
                        in_doubt = self._list(former.identity)
                        self.log.put(former._replace(returned=True, shared=False, in_doubt=in_doubt))
        finally:
            self.log.close()

    async def _renew(self) -> None:
        """Writes entries again before they expire, and ends what uses one that could not be written; for ever."""
        while True:
            self.log.renew()
            self._end_expiring()
            await trio.sleep(self.log.retention.pause_s)

    def _end_expiring(self) -> None:
        """Another lane is leased once the log can be written: until then the clients wait, and nobody misses them."""
        now = trio.current_time()
        expiring = [lane for lane in self._leases if now >= self.log.usable_until(self._key(lane))]
        if expiring:
            log.warning(
                "producer ids can't be recorded, so others will soon not know that they are in use: their connections "
                "are closed, and the clients wait until the log of producer ids can be written",
                topic=TOPIC,
                connections=len(expiring),
            )
        for lane in expiring:
            self._leases[lane].end()

    async def lease(self, identity: Identity, end: Callable[[], None] = _no_connection) -> Lane:
        """A lane for one connection of a producer; what the log has to know of it is acknowledged.

        Tried until the brokers let it be done. What the former self had of this producer is known by then. ``end`` is
        called if the lane must not be used any more.
        """
        await self.log.opened.wait()
        self._end_rests()
        self._end_abandoned()
        lane, lease = await self._next(identity)
        record = self._record(lane, lease)
        self._leases[lane] = lease._replace(recorded_ms=record.recorded_ms, end=end)
        self._count()
        try:
            await self.log.record(record)
            await self.fleet.look(identity)  # after the record: of two instances one at least sees the other
        except BaseException:
            self.give_back(lane)
            raise
        return lane

    def give_back(self, lane: Lane) -> None:
        """Ends a lease. A lane that has not ended is not used again."""
        lease = self._leases.pop(lane)._replace(end=_no_connection)  # a lane that rests keeps no connection in memory
        self._count()
        if not lane.has_ended:
            self.log.leave(self._key(lane))  # nothing of it is sent any more: what is in flight arrives before that
            if self.fleet.enabled:
                self._abandoned[lane] = self._rest_of(lease)
            return
        record = self._record(lane, lease, returned=True)
        self.log.put(record)  # the next kproxy need not fence it
        rest = self._rest_of(lease._replace(recorded_ms=record.recorded_ms))
        rest = rest._replace(used_epoch=lane.used_epoch, partitions=len(lane.tracks))
        lane.tracks.clear()  # all is settled, and the next lease begins with other epochs
        if not self.log.enabled:
            self._pool.give_back(lane)
            return
        self._rest(lane, rest)
        if len(self._resting) > _MOST_RESTING:
            self._wake(next(iter(self._resting)))

    def fenced(self, lane: Lane, taken_at: float) -> None:
        """Records that another instance fenced a lane, which was seen with a request of ``taken_at``."""
        lease = self._leases[lane]
        self.fleet.fenced(lease.identity, taken_at, lease.recorded_ms / 1000)

    def _key(self, lane: Lane) -> LaneKey:
        return LaneKey(self._config.instance_id, lane.producer_id)

    def _record(self, lane: Lane, lease: _Lease, *, returned: bool = False, recorded_ms: int = 0) -> LaneRecord:
        """The entry of a lane as it is from now on, or since ``recorded_ms``."""
        in_doubt = self._list(lease.identity)
        if in_doubt is not None and self.log.enabled:
            self._told[lease.identity] = _Told(lane, in_doubt.mark, bool(in_doubt.batches))
            if returned and not in_doubt.batches:
                del self._told[lease.identity]
        return LaneRecord(
            self._config.instance_id,
            lane.producer_id,
            lease.first_epoch,
            lane.last_epoch,
            lease.identity,
            recorded_ms or int(self._cluster.network.wall() * 1000),
            returned=returned,
            shared=self.fleet.is_shared(lease.identity),
            in_doubt=in_doubt,
        )

    # -- what is in doubt

    def _list(self, identity: Identity) -> InDoubt | None:
        """What is in doubt of a producer now, as a list that is newer than all that this instance has written."""
        in_doubt = self.in_doubt(identity)
        if in_doubt is None:
            return None
        self._list_ms = max(in_doubt.at_ms, self._list_ms + 1, self.log.newest_list_ms + 1)
        was_set_back = self._list_ms > in_doubt.at_ms + _SET_BACK_MS
        return in_doubt.moved_to(self._list_ms) if was_set_back else in_doubt._replace(at_ms=self._list_ms)

    def list_again(self, identities: Iterable[Identity]) -> None:
        """Writes again what is in doubt of producers where that has changed; called every now and then.

        What was confirmed since must not be compared elsewhere, and what a client has repeated in vain is in doubt for
        longer.
        """
        if not self.log.enabled:
            self._told.clear()
            return
        told_of = (one for one, told in self._told.items() if told.has_batches and not self.is_unchanged(one))
        for identity in {*identities, *told_of}:
            told, in_doubt = self._told.get(identity), self.in_doubt(identity)
            if in_doubt is None or in_doubt.mark == (b"" if told is None else told.mark):
                continue
            if told is None or not self._put_again(told.lane):
                self._told.pop(identity, None)
                next((lane for lane in reversed(self._lanes_of(identity)) if self._put_again(lane)), None)

    def _lanes_of(self, identity: Identity) -> list[Lane]:
        leased = [lane for lane, lease in self._leases.items() if lease.identity == identity]
        return [*self._resting_lanes(identity), *leased]

    def _resting_lanes(self, identity: Identity) -> list[Lane]:
        """The first to rest first."""
        lanes = self._resting_of.get(identity, ())
        return [lanes] if isinstance(lanes, Lane) else list(lanes)

    def _put_again(self, lane: Lane) -> bool:
        """Writes the entry of a lane again with what is in doubt now, if it is one of this identity's still."""
        lease = self._leases.get(lane)
        if lease is not None:
            self.log.keep(self._record(lane, lease, recorded_ms=lease.recorded_ms))
            return True
        rest = self._resting.get(lane)
        if rest is not None:
            self.log.put(self._record(lane, rest.lease, returned=True, recorded_ms=rest.recorded_ms))
        return rest is not None

    def held(self) -> list[HeldLane]:
        """All lanes that a producer has or may have again."""
        leased = self._leases.items()
        rows = [HeldLane(lane, lease.identity, True, lane.used_epoch, len(lane.tracks)) for lane, lease in leased]
        resting = self._resting.items()
        return rows + [HeldLane(lane, one.identity, False, one.used_epoch, one.partitions) for lane, one in resting]

    # -- where lanes come from

    async def _next(self, identity: Identity) -> tuple[Lane, _Lease]:
        backoff = Backoff(self._config)
        while True:
            lane = self._again(identity)
            if lane is not None:
                return lane
            fresh = self._pool.lease() or await self._new_lane()
            if fresh is not None:
                return fresh, _Lease(identity, fresh.epoch)
            await backoff.pause()

    def _again(self, identity: Identity) -> tuple[Lane, _Lease] | None:
        """One of the identity's own that rests, with its next epochs."""
        resting = self._resting_of.get(identity)
        if resting is None:
            return None
        former = resting if isinstance(resting, Lane) else next(reversed(resting))
        lease = self._wake(former)
        self._pool.give_back(former)
        lane = self._pool.lease()
        if lane is None:
            return None  # it had too few epochs left
        return lane, lease if lane.producer_id == former.producer_id else _Lease(identity, lane.epoch)

    def _end_rests(self) -> None:
        for lane, rest in _due(self._resting):
            self._wake(lane)
            if self._is_needed(lane, rest.identity):
                self._rest(lane, rest._replace(until=self._rest_of(rest.lease).until))
            else:
                self._pool.give_back(lane)

    def _is_needed(self, lane: Lane, identity: Identity) -> bool:
        """Whether its entry says what is in doubt of its producer: another producer's would take its place."""
        told = self._told.get(identity)
        return told is not None and told.lane is lane and told.has_batches

    def _rest_of(self, lease: _Lease) -> _Rest:
        until = trio.current_time() + self._config.retry_window_ms / 1000
        return _Rest(lease.identity, lease.first_epoch, lease.recorded_ms, until)

    def _rest(self, lane: Lane, rest: _Rest) -> None:
        self._resting[lane] = rest
        others = self._resting_of.setdefault(rest.identity, lane)
        if isinstance(others, dict):
            others[lane] = None
        elif others is not lane:
            self._resting_of[rest.identity] = {others: None, lane: None}

    def _end_abandoned(self) -> None:
        for lane, rest in _due(self._abandoned):
            del self._abandoned[lane]
            if not lane.unsettled():  # else its entry stays until it expires
                self.log.put(self._record(lane, rest.lease, returned=True))

    def _wake(self, lane: Lane) -> _Lease:
        rest = self._resting.pop(lane)
        others = self._resting_of[rest.identity]
        if isinstance(others, dict):
            del others[lane]
        if not others or others is lane:
            del self._resting_of[rest.identity]
        return rest.lease

    async def _new_lane(self) -> Lane | None:
        try:
            return self._pool.adopt(await self._cluster.new_producer_id())
        except (OSError, RemoteProtocolError):
            self._cluster.count_error("init_producer_id")
            return None

    def _count(self) -> None:
        self._stats.producer_ids_active = len(self._leases)


def _due(rests: Mapping[Lane, _Rest]) -> list[tuple[Lane, _Rest]]:
    """Those whose time has expired; the others come after them."""
    now = trio.current_time()
    return list(takewhile(lambda item: now >= item[1].until, rests.items()))
