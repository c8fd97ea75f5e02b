"""What other instances have of a producer: leases of producer ids that its retries may have to be compared with.

A producer whose connections are in use at two instances at the same time is **shared**. Its instances would end each
other's connections for ever; so they leave each other's alone. What the other one has written is compared without a
fence, for each connection once more, and only by equal timestamps: it may be another process that sends equal records.
What an instance held before another process took its name is not in use any more: it is fenced and compared as what a
producer left that is not shared.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Final, NamedTuple

import structlog
import trio

from kproxy.config.retry_options import RetryOptions
from kproxy.dedup.former_lanes import newest_lists
from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import LaneRecord
from kproxy.dedup.listed import InDoubt
from kproxy.dedup.retry_rules import CLOCKS_AGREE_SECONDS
from kproxy.net.lane_log import LaneLog

log = structlog.get_logger("kproxy.fleet")

#: So many connections that were fenced while in use show that their producer is shared.
_TELLING_FENCES: Final = 2
_LOOK_AGAIN_SECONDS: Final = 0.2
#: A lease that began after a fence, and was fenced within this time of it: two processes take turns.
_TURN_SECONDS: Final = 2.0
#: After a stall of this process: seconds within which it reads what came meanwhile.
_BACKLOG_SECONDS: Final = 2.0
#: Times of leases are whole milliseconds.
_TICK_SECONDS: Final = 0.001


class _Fence(NamedTuple):
    """A fence of another instance, by ``wall``: when the request was taken that met it, and when the lease began."""

    taken_at: float
    leased_at: float


class _Stall(NamedTuple):
    """Seconds since the epoch: the last moment before at which this process ran, and the first after it."""

    began: float
    ended: float


_NONE: Final = _Fence(inf, inf)


class Fleet:
    """The other instances, by the lane log."""

    def __init__(self, config: RetryOptions, lane_log: LaneLog, wall: Callable[[], float]) -> None:
        """``wall`` tells the time in seconds since the epoch."""
        self._config = config
        self._log = lane_log
        self._wall = wall
        self.enabled = config.fleet_retries_enable and lane_log.enabled
        #: By producer, fences that were not judged yet, those of connections that were in use (when the request was
        #: taken), and until when it is shared; by ``wall``.
        self._fenced: dict[Identity, list[_Fence]] = {}
        self._telling: dict[Identity, list[float]] = {}
        #: The last fence of each.
        self._last: dict[Identity, _Fence] = {}
        self._shared_until: dict[Identity, float] = {}
        #: By producer, leases that others did not give back in time: producer id and last epoch.
        self._waited: dict[Identity, set[tuple[int, int]]] = {}
        #: The last time that this process stood still, by ``wall``.
        self._stall = _Stall(-inf, -inf)
        self._tidied = wall()

    async def look(self, identity: Identity) -> None:
        """Learns what other instances have of a producer; waits a moment for those that still hold some of it."""
        if not self.enabled:
            return
        give_up = trio.current_time() + self._config.fleet_patience_ms / 1000
        await self._log.look()
        self._judge(identity)
        waited = self._waited.pop(identity, set())
        while (held := self._held(identity)) - waited and trio.current_time() < give_up:
            await trio.sleep(_LOOK_AGAIN_SECONDS)
            await self._log.look()
        if held:
            self._waited[identity] = held
        self._tidy()

    def _held(self, identity: Identity) -> set[tuple[int, int]]:
        """The leases that others have to give back, by producer id and last epoch."""
        if self.is_shared(identity):
            return set()
        return {(lane.producer_id, lane.last_epoch) for lane in self.lanes(identity) if lane.is_held}

    def lanes(self, identity: Identity) -> list[LaneRecord]:
        """What others hold, and gave back within the retry window.

        Of a producer that ``is_shared`` they continue to use what they hold.
        """
        if not self.enabled:
            return []
        soonest = self._wall() * 1000 - self._config.retry_window_ms
        return [lane for lane in self._log.elsewhere(identity) if not lane.returned or lane.recorded_ms >= soonest]

    def lists(self, identity: Identity) -> dict[str, InDoubt]:
        """What others have in doubt of a producer, by instance."""
        return newest_lists(self._log.elsewhere(identity)) if self.enabled else {}

    def fenced(self, identity: Identity, taken_at: float, leased_at: float) -> None:
        """Records that another instance fenced a lease of ``leased_at``, seen with a request of ``taken_at``."""
        if self.enabled:
            self._fenced.setdefault(identity, []).append(_Fence(taken_at, leased_at))

    def stalled(self, seconds: float) -> None:
        """Records that this process stood still until now: what came meanwhile is read late."""
        now = self._wall()
        if now - seconds > self._stall.ended + _BACKLOG_SECONDS:
            self._stall = _Stall(now - seconds, now)
        else:
            self._stall = self._stall._replace(ended=now)

    def is_shared(self, identity: Identity) -> bool:
        """Whether a producer is in use at another instance, too."""
        if self._wall() < self._shared_until.get(identity, 0.0):
            return True
        return any(lane.shared and lane.is_held for lane in self._log.elsewhere(identity))

    def _judge(self, identity: Identity) -> None:
        """Looks whether the producer is shared: fences met connections in use, or another instance says so."""
        held = [lane.recorded_ms / 1000 for lane in self._log.elsewhere(identity) if not lane.returned]
        now, window = self._wall(), self._config.retry_window_ms / 1000
        new = [fence.taken_at for fence in self._fenced.pop(identity, []) if self._was_in_use(identity, fence, held)]
        telling = [at for at in self._telling.pop(identity, []) + new if at > now - window]
        if len(telling) >= _TELLING_FENCES and not self.is_shared(identity):
            log.warning(
                "a producer is in use at two instances at the same time: neither fences the other from now on, and a "
                "retry of a batch that is in flight at the other one is written twice; if these are several processes, "
                "give each a client.id of its own; if it is one whose connections a balancer spreads, let the balancer "
                "keep a client at one instance",
                principal=identity.principal,
                client_id=identity.client_id,
                host=identity.host,
            )
        if len(telling) >= _TELLING_FENCES or self.is_shared(identity):
            self._shared_until[identity] = now + window
        elif telling:
            self._telling[identity] = telling

    def _was_in_use(self, identity: Identity, fence: _Fence, held: Sequence[float]) -> bool:
        """Whether its client still used the connection; ``held``: when the leases began that others hold.

        A client that failed over sends nothing more over its former connection. Only a newer lease can have fenced this
        one: that of an instance that died long ago shows nothing. Two processes that fence each other in turn may meet
        each fence too soon for that; a client that moves does not move and return so fast. A request that was read
        after a stall of this process may have been sent before it.
        """
        before = self._last.get(identity, _NONE)
        self._last[identity] = fence
        is_next = before.taken_at <= fence.leased_at + _TICK_SECONDS
        in_turn = is_next and fence.taken_at < before.taken_at + _TURN_SECONDS
        stall = self._stall
        is_late = stall.began <= fence.taken_at <= stall.ended + _BACKLOG_SECONDS
        sent_at = stall.began if is_late else fence.taken_at
        return in_turn or any(fence.leased_at < since < sent_at - CLOCKS_AGREE_SECONDS for since in held)

    def _tidy(self) -> None:
        """Once in a retry window, frees what can't matter any more of producers that may never come back."""
        now, window = self._wall(), self._config.retry_window_ms / 1000
        if 0 <= now - self._tidied < window:
            return
        self._tidied = now
        for identity in [one for one, seen in self._fenced.items() if max(seen).taken_at <= now - window]:
            del self._fenced[identity]
        for identity in [one for one, last in self._last.items() if last.taken_at <= now - window]:
            del self._last[identity]
        for identity in [one for one, seen in self._telling.items() if max(seen) <= now - window]:
            del self._telling[identity]
        for identity in [one for one, until in self._shared_until.items() if until <= now]:
            del self._shared_until[identity]
        for identity in [one for one in self._waited if all(lane.returned for lane in self._log.elsewhere(one))]:
            del self._waited[identity]
