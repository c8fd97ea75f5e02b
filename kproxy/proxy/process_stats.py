"""Counters of the process itself, and of the fleet that it belongs to."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass

from kproxy.proxy.durations import Durations
from kproxy.proxy.metric_fields import counters, durations, gauges


@dataclass(slots=True)
class ProcessStats:
    """How busy the process is, and what happened to its traces."""

    loop_delays: Durations = durations(
        "Delay of the event loop, measured four times a second; if it rises, one core is not enough: run more "
        "instances.",
        "loop_delay_seconds",
    )
    spans: dict[str, int] = counters(
        "Spans of traces: exported, dropped because the queue was full, failed to be exported.",
        "outcome",
        expected=("dropped", "exported", "failed"),
    )
    fleet_ignored: dict[str, int] = gauges(
        "Entries of __kproxy_fleet not used when this instance last read it: damaged, too long, too many, from the "
        "future by the brokers' clock, or expired.",
        "reason",
    )
