"""The distances of hosts from each other, and how their kernels acknowledge."""

from typing import Final, NamedTuple

from verification.simulation.tcp import USUAL, AckHabits

_NEAR: Final = (0.001, 0.003, 0.01, 0.04)
_BROKER_LEG: Final = "broker"


class Weather(NamedTuple):
    """The weather of one run."""

    #: Seconds one way between clients and kproxy, one of these; jitter doubles it at most.
    clients: tuple[float, ...] = _NEAR
    #: The same between kproxy and brokers.
    brokers: tuple[float, ...] = _NEAR
    acks: AckHabits = USUAL
    #: Bytes that are in flight or unread at most, one of these.
    capacities: tuple[int, ...] = (700, 5_000, 65_536, 65_536)

    def latencies(self, leg: str) -> tuple[float, ...]:
        """Those of a leg."""
        return self.brokers if leg == _BROKER_LEG else self.clients


NEAR: Final = Weather()
#: Clients up to 300 ms away (0.15 s and jitter).
FAR: Final = Weather(clients=(0.001, 0.05, 0.15))
