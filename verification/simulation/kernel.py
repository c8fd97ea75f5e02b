"""One end of a connection as its kernel keeps it: when it gives up a peer that does not answer."""

from typing import Final

import trio

from verification.simulation.clock import VirtualClock
from verification.simulation.tcp import KEEPALIVE_SECONDS, PATIENCE_SECONDS, PROBE_SECONDS, retransmission
from verification.simulation.wire import RST, Pipe

#: A timer is due a moment after its time, so that it is.
_MOMENT: Final = 1e-6


class KernelEnd:
    """The timers of an end. They run only while they can matter: with a user time-out, or when a route was cut."""

    def __init__(self, incoming: Pipe, outgoing: Pipe, clock: VirtualClock, number: int) -> None:
        """``number`` orders what happens at one time."""
        self._in = incoming
        self._out = outgoing
        self._clock = clock
        self._number = number
        self._user_timeout = 0.0
        self._watches = self._probes = False

    def limit_unacknowledged(self, timeout_ms: int) -> None:
        """TCP_USER_TIMEOUT. It ends an end whose peer does not read as well, since its window is full."""
        self._user_timeout = timeout_ms / 1000
        self._out.on_write = self._watch
        self._watch()

    def route_is_cut(self) -> None:
        """Starts the timers that run out while packets are lost."""
        self._out.on_write = self._watch
        self._watch()
        if not self._probes:
            self._probes = True
            self._clock.at(self._idle_until, self._number, self._probe)

    @property
    def _has_ended(self) -> bool:
        return self._out.back.gone or self._in.reset

    # -- what is sent and not acknowledged

    def _watch(self) -> None:
        since = self._out.waiting_since
        if since is not None and not self._watches and not self._has_ended:
            self._watches = True
            self._clock.at(since + self._limit + _MOMENT, self._number, self._check)

    @property
    def _limit(self) -> float:
        return self._user_timeout or PATIENCE_SECONDS

    def _check(self) -> None:
        self._watches = False
        since = self._out.waiting_since
        if since is not None and not self._has_ended and trio.current_time() >= since + self._limit:
            self._give_up()
        else:
            self._watch()

    def _give_up(self) -> None:
        self._out.give_up()
        self._in.time_out()

    # -- nothing is heard

    @property
    def _idle_until(self) -> float:
        now = trio.current_time()
        patience = self._user_timeout or KEEPALIVE_SECONDS
        return max(self._out.answered_at + patience, now) + _MOMENT

    def _probe(self) -> None:
        """Keepalive: as long as data are unacknowledged there are no probes."""
        self._probes = False
        if self._has_ended:
            return
        now, due, since = trio.current_time(), self._idle_until, self._out.waiting_since
        is_open = not (self._out.is_blocked or self._in.is_blocked)
        if since is not None and is_open and self._out.gone:
            due = retransmission(since, 0.0, now - _MOMENT)
            if due <= now:
                self._in.break_now()  # what is sent again is answered by a reset
                return
        elif since is not None:
            due = now + PROBE_SECONDS
        elif is_open:
            if self._out.gone or self._out.reset:
                self._in.break_now()  # the probe is answered by a reset
            return
        elif due <= now + 2 * _MOMENT:
            self._in.time_out()
            self._out.give_up()
            self._out.end(RST)
            return
        self._probes = True
        self._clock.at(due, self._number, self._probe)
