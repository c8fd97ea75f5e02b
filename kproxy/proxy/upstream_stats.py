"""Counters of the connections to brokers."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass
from typing import NamedTuple

from kproxy.proxy.metric_fields import counters, gauge


class Outage(NamedTuple):
    """A time in which no broker answers."""

    #: In seconds since the epoch.
    since: float
    #: Of the last attempt, each once; they name the brokers' addresses.
    errors: tuple[str, ...]
    #: The longest pause before the next attempt, in ms.
    pause_ms: int


@dataclass(slots=True)
class UpstreamStats:
    """The brokers that kproxy knows, its connections to them, and whether it serves clients."""

    #: The brokers answered when they were last asked for their list.
    reached: bool = False
    #: None while brokers answer, and before they were asked.
    outage: Outage | None = None
    #: The log of producer ids is open; until then producers wait.
    prepared: bool = True
    #: Connections of clients are accepted.
    listening: bool = False
    #: kproxy ends, and may still accept connections for a while.
    stopping: bool = False
    brokers: int = gauge("Brokers known.")
    connections_open: int = gauge("Connections to brokers open.", "upstream_connections")
    bytes_in: int = 0
    bytes_out: int = 0
    errors: dict[str, int] = counters(
        "Faults towards brokers.",
        "kind",
        name="upstream_errors",
        expected=("authentication", "connect", "disconnected", "metadata", "protocol", "timeout"),
    )

    @property
    def ready(self) -> bool:
        """Whether clients are served."""
        return self.reached and self.prepared and self.listening and not self.stopping
