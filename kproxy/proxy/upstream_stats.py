"""Counters of the connections to brokers."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass

from kproxy.proxy.metric_fields import counters, gauge


@dataclass(slots=True)
class UpstreamStats:
    """The brokers that kproxy knows, and its connections to them."""

    ready: bool = gauge("1 if clients are served.")
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
