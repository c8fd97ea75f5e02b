"""The charts of the report, independent of how they are drawn: bars of one or several parts, by topic or over time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kproxy.spark.audit.summary import Row, Summary

_T = TypeVar("_T")
MOST_BARS: Final = 15
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_VISIBILITIES: Final = ("committed", "aborted", "undecided", "control")


class Bar(NamedTuple):
    """One bar: its label, its parts from the axis on, and what is written at its end."""

    label: str
    parts: Sequence[float]
    note: str


class Chart(NamedTuple):
    """Bars of one chart. ``tones`` names the parts; ``is_time``: columns over time in place of rows by topic."""

    title: str
    tones: Sequence[str]
    bars: Sequence[Bar]
    most: float
    is_time: bool = False


def charts(summary: Summary) -> list[Chart]:
    """The charts of a report, in order; one without bars has nothing to show."""
    return [_visibility(summary), _protection(summary), _repeated(summary)]


def size(count: float) -> str:
    """Bytes for people: ``1.5 MiB``."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def shortened(label: str, longest: int) -> str:
    """A name that fits: without its middle, because long names often begin alike and end alike."""
    head = longest // 2
    return label if len(label) <= longest else f"{label[:head]}…{label[head + 1 - longest :]}"


def _visibility(summary: Summary) -> Chart:
    topics: dict[str, dict[str, float]] = {}
    for row in summary.visibility:
        topics.setdefault(str(row["topic"]), {})[str(row["visibility"])] = _number(row, "bytes")
    bars = [
        Bar(topic, [parts.get(tone, 0) for tone in _VISIBILITIES], size(sum(parts.values())))
        for topic, parts in _largest(topics, lambda parts: sum(parts.values()))
    ]
    most = max((sum(bar.parts) for bar in bars), default=0)
    return Chart("Bytes by visibility", _VISIBILITIES, bars, most)


def _protection(summary: Summary) -> Chart:
    rows = {str(row["topic"]): row for row in summary.protection}
    shares = _largest(rows, lambda row: _number(row, "unprotected_share"))
    bars = [
        Bar(topic, [_number(row, "unprotected_share")], f"{100 * _number(row, 'unprotected_share'):.3g} %")
        for topic, row in shares
    ]
    return Chart("Unprotected share of bytes", ("unprotected",), bars, 1)


def _repeated(summary: Summary) -> Chart:
    bars = [Bar(each.start, [each.repeated], f"{each.repeated:,}") for each in summary.repeated_over_time]
    most = max((bar.parts[0] for bar in bars), default=0)
    return Chart("Repeated records over time (UTC), each record once", ("repeated",), bars, most, is_time=True)


def _largest(rows: Mapping[str, _T], of: Callable[[_T], float]) -> list[tuple[str, _T]]:
    return sorted(rows.items(), key=lambda item: (-of(item[1]), item[0]))[:MOST_BARS]


def _number(row: Row, name: str) -> float:
    return float(row[name] or 0)
