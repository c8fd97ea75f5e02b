"""A connection in memory between two hosts, from outside: how far they are from each other, and what harms it."""

from math import inf
from random import Random
from typing import Final

import trio

from verification.simulation.clock import VirtualClock
from verification.simulation.kernel import KernelEnd
from verification.simulation.tcp import Acknowledgements
from verification.simulation.virtual_io import VirtualIO
from verification.simulation.weather import NEAR, Weather
from verification.simulation.wire import GIVE_UP_SECONDS, Pipe

#: Seconds within which kproxy must notice that a response is not acknowledged (TCP_USER_TIMEOUT).
NOTICED_WITHIN: Final = 30.0


class Link:
    """A connection between two hosts, from outside."""

    def __init__(
        self,
        number: int,
        leg: str,
        clock: VirtualClock,
        rng: Random,
        hosts: tuple[str, str],
        weather: Weather = NEAR,
    ) -> None:
        """``leg`` says what it is for; the first of ``hosts`` is the one that connects."""
        self.number = number
        self.leg = leg
        self.hosts = hosts
        self.half_open = False
        #: The port where its far end listened: kproxy has a port for each broker.
        self.port = 0
        #: Of a connection to a balancer, that to kproxy.
        self.beyond: Link | None = None
        #: When it was opened, and when the first batch was sent over it, by trio's clock.
        self.opened_at = trio.current_time()
        self.used_at = inf
        #: When requests were sent whose responses the near end has read, and when it read them.
        self.rounds: list[tuple[float, float]] = []
        #: The near end has left with a response that it had taken from its kernel, and not looked at.
        self.left_unread = False
        self.was_cut = False
        #: When a half-open connection is reset (trio's clock).
        self._given_up_at = 0.0
        latency = rng.choice(weather.latencies(leg))
        late = Random(number)
        self.up, self.down = (
            Pipe(clock, number, rng, latency, rng.choice(weather.capacities), Acknowledgements(late, weather.acks))
            for _ in range(2)
        )
        self.up.back, self.down.back = self.down, self.up
        kernels = KernelEnd(self.down, self.up, clock, number), KernelEnd(self.up, self.down, clock, number)
        self.near = VirtualIO(self.down, self.up, hosts[0], hosts[1], kernels[0])
        self.far = VirtualIO(self.up, self.down, hosts[1], hosts[0], kernels[1])
        self._clock = clock

    @property
    def over(self) -> bool:
        """Whether either end is closed."""
        return self.near.closed or self.far.closed

    def cut(self) -> None:
        """Breaks the connection: both ends see a reset, and bytes in flight are lost."""
        self.up.break_now()
        self.down.break_now()

    def cut_after(self, size: int, *, answers: bool) -> None:
        """Breaks the connection (``cut``) when so many more bytes have arrived in one direction."""
        (self.down if answers else self.up).cut_after(size, self.cut)

    def stall(self, seconds: float) -> None:
        """Holds up both directions."""
        self.up.stall(seconds)
        self.down.stall(seconds)

    def vanish(self) -> None:
        """Half-open: packets vanish, until something between the ends resets it."""
        self.half_open = True
        self.up.vanish()
        self.down.vanish()
        self._given_up_at = trio.current_time() + GIVE_UP_SECONDS
        self._clock.at(self._given_up_at, self.number, self.cut)

    def cut_route(self, seconds: float, *, up: bool = True, down: bool = True) -> None:
        """Loses all packets of the directions for so long."""
        self.was_cut = True
        for pipe, is_cut in ((self.up, up), (self.down, down)):
            if is_cut:
                pipe.block(seconds)
        for io in (self.near, self.far):
            io.kernel.route_is_cut()

    @property
    def end_unseen_until(self) -> float:
        """The first time at which the far end can see that the near end has left (trio's clock); 0: it can see it now.

        Of a route that is cut it sees nothing before the FIN is sent again. With a user time-out it need not wait for
        that for longer than ``NOTICED_WITHIN``, from the first byte that was not acknowledged. For granted is taken
        that an end which has nothing unacknowledged, and waits for no longer than keepalive does, can't know.
        """
        if self.beyond is not None:
            passed_on = max(self.up.last_arrival, trio.current_time()) + 2 * self.beyond.up.latency
            return max(passed_on, self.beyond.end_unseen_until) if not self.beyond.has_seen_end else 0.0
        if self.has_seen_end:
            return 0.0
        if self.half_open:
            return self._given_up_at
        if self.up.end_waits:
            return inf
        if not self.was_cut:
            return self.up.last_arrival
        since = self.down.waiting_since
        noticed = (trio.current_time() if since is None else since) + NOTICED_WITHIN
        return min(self.up.last_arrival, noticed) if self.near.closed and self.up.has_end else noticed

    @property
    def round_trip(self) -> float:
        """Seconds that a response and the next request are in flight at most: jitter doubles the latency."""
        own = 2 * (self.up.latency + self.down.latency)
        return own if self.beyond is None else own + self.beyond.round_trip

    @property
    def held_until(self) -> float:
        """The time until which (trio's clock) something in flight is held up or lost."""
        own = max(self.up.held_until, self.down.held_until)
        return own if self.beyond is None else max(own, self.beyond.held_until)

    @property
    def has_seen_end(self) -> bool:
        """Whether the far end can see that the near end has left."""
        return self.far.closed or self.up.ended or self.up.reset

    @property
    def ended_well(self) -> bool:
        """Whether the far end saw a FIN, and all that it wrote acknowledged before: so its peer has read it."""
        if self.beyond is not None:
            return self.beyond.ended_well
        return self.far.closed and self.far.closed_well() and not self.far.unacked()
