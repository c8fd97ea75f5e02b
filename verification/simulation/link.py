"""A connection in memory between two hosts, from outside: how far they are from each other, and what harms it."""

from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

import trio

from verification.simulation.clock import VirtualClock
from verification.simulation.kernel import KernelEnd
from verification.simulation.tcp import USUAL, AckHabits, Acknowledgements
from verification.simulation.virtual_io import VirtualIO
from verification.simulation.wire import GIVE_UP_SECONDS, Pipe

_LATENCIES: Final = (0.001, 0.003, 0.01, 0.04)
_CAPACITIES: Final = (700, 5_000, 65_536, 65_536)


class Weather(NamedTuple):
    """How far hosts are from each other, and how their kernels acknowledge."""

    #: Seconds one way, one of these, by leg; jitter doubles it at most.
    latencies: Mapping[str, tuple[float, ...]] = MappingProxyType({})
    acks: AckHabits = USUAL


NEAR: Final = Weather()


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
        #: When the kernels give up a half-open connection (trio's clock).
        self._given_up_at = 0.0
        latency = rng.choice(weather.latencies.get(leg, _LATENCIES))
        late = Random(number)
        self.up, self.down = (
            Pipe(clock, number, rng, latency, rng.choice(_CAPACITIES), Acknowledgements(late, weather.acks))
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
        """As ``cut``, when so many more bytes have arrived in one direction."""
        (self.down if answers else self.up).cut_after(size, self.cut)

    def stall(self, seconds: float) -> None:
        """Holds up both directions."""
        self.up.stall(seconds)
        self.down.stall(seconds)

    def vanish(self) -> None:
        """Half-open: packets vanish; the kernels give up in the end."""
        self.half_open = True
        self.up.vanish()
        self.down.vanish()
        self._given_up_at = trio.current_time() + GIVE_UP_SECONDS
        self._clock.at(self._given_up_at, self.number, self.cut)

    def cut_route(self, seconds: float, *, up: bool = True, down: bool = True) -> None:
        """Loses all packets of the directions for so long."""
        for pipe, is_cut in ((self.up, up), (self.down, down)):
            if is_cut:
                pipe.block(seconds)
        for io in (self.near, self.far):
            io.kernel.route_is_cut()

    @property
    def end_unseen_until(self) -> float:
        """When the far end can first see that the near end has left (trio's clock); 0 if it can see it now."""
        if self.far.closed or self.up.ended or self.up.reset:
            return 0.0
        return self._given_up_at if self.half_open else self.up.last_arrival
