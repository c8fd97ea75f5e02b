"""Counters that are metrics, too: name, labels and text of the metric are declared with the field, and only there."""

from dataclasses import field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from kproxy.proxy.durations import Durations

#: The key of a field's metadata.
METRIC: Final = "metric"


class Kind(Enum):
    """What the metrics page makes of the value."""

    COUNTER = auto()
    GAUGE = auto()
    AGE = auto()
    HISTOGRAM = auto()


class Metric(NamedTuple):
    """A metric of one field."""

    kind: Kind
    text: str
    #: Without ``kproxy_``; empty: the field's name.
    name: str = ""
    labels: tuple[str, ...] = ()
    #: Values of the one label that are shown as 0 before they occur: ``increase`` does not see a series begin at 1.
    expected: tuple[str, ...] = ()


def counter(text: str, name: str = "") -> Any:
    """A number that only rises."""
    return field(default=0, metadata={METRIC: Metric(Kind.COUNTER, text, name)})


def counters(text: str, *labels: str, name: str = "", expected: tuple[str, ...] = ()) -> Any:
    """Numbers that only rise, by the value of the one label, or by a tuple of the values of all labels."""
    return field(default_factory=dict, metadata={METRIC: Metric(Kind.COUNTER, text, name, labels, expected)})


def gauge(text: str, name: str = "") -> Any:
    """A number that rises and falls."""
    return field(default=0, metadata={METRIC: Metric(Kind.GAUGE, text, name)})


def gauges(text: str, label: str) -> Any:
    """Numbers that rise and fall, by the value of the label."""
    return field(default_factory=dict, metadata={METRIC: Metric(Kind.GAUGE, text, labels=(label,))})


def moment(text: str, name: str) -> Any:
    """A moment in seconds since the epoch, or None; the page shows how long ago it was, 0 for None."""
    return field(default=None, metadata={METRIC: Metric(Kind.AGE, text, name)})


def durations(text: str, name: str) -> Any:
    """A histogram of seconds."""
    return field(default_factory=Durations, metadata={METRIC: Metric(Kind.HISTOGRAM, text, name)})
