"""A counter carries its metric with it, and counts as a plain attribute."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field.

from dataclasses import dataclass, fields

from kproxy.proxy.metric_fields import METRIC, Kind, Metric, counter, counters, gauge, moment


@dataclass(slots=True)
class Counts:
    seen: int = counter("Things seen.")
    lost: dict[str, int] = counters("Things lost.", "reason", name="things_lost", expected=("late",))
    here: int = gauge("Things here.")
    since: float | None = moment("Age of the oldest thing.", "oldest_seconds")


def test_values_are_plain_and_no_two_objects_share_them() -> None:
    one, other = Counts(), Counts()
    one.seen += 1
    one.lost["late"] = 2
    assert (one.seen, one.lost, one.here, one.since) == (1, {"late": 2}, 0, None)
    assert (other.seen, other.lost) == (0, {})


def test_each_field_has_its_metric() -> None:
    assert [field.metadata[METRIC] for field in fields(Counts)] == [
        Metric(Kind.COUNTER, "Things seen."),
        Metric(Kind.COUNTER, "Things lost.", "things_lost", ("reason",), ("late",)),
        Metric(Kind.GAUGE, "Things here."),
        Metric(Kind.AGE, "Age of the oldest thing.", "oldest_seconds"),
    ]
