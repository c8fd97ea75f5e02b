"""What a case found: the records that clients sent, those that were acknowledged, and the log."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

__all__ = ["Outcome", "compare", "compare_in_order"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Numbers of records, and what else was not as it should be.

    ``lost`` were acknowledged and are not in the log. ``doubled`` are copies in the log beyond those that were sent.
    ``late`` are in the log after a record that the same client sent later. ``sent`` should all be acknowledged.
    """

    sent: int
    acknowledged: int
    logged: int
    lost: int
    doubled: int
    late: int = 0
    faults: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Return why this outcome is bad; nothing if it is good."""
        counted = {"lost": self.lost, "doubled": self.doubled, "late": self.late}
        found = [f"{count} {name}" for name, count in counted.items() if count]
        if self.acknowledged != self.sent:
            found.append(f"{self.sent - self.acknowledged} of {self.sent} not acknowledged")
        return (*found, *self.faults)

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.sent + other.sent,
            self.acknowledged + other.acknowledged,
            self.logged + other.logged,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.late + other.late,
            self.faults + other.faults,
        )


def compare(
    sent: Iterable[Hashable],
    acknowledged: Iterable[Hashable],
    log: Sequence[Hashable],
    *,
    faults: Iterable[str] = (),
) -> Outcome:
    """Compare a log with what clients sent; equal records are counted, each for itself.

    :param sent: each record as often as an application sent it, whatever became of it.
    """
    wanted, answered, found = Counter(sent), Counter(acknowledged), Counter(log)
    return Outcome(
        wanted.total(),
        answered.total(),
        found.total(),
        lost=(answered - found).total(),
        doubled=(found - wanted).total(),
        faults=tuple(faults),
    )


def compare_in_order(
    sent: Sequence[int], acknowledged: Iterable[int], log: Sequence[int], *, faults: Iterable[str] = ()
) -> Outcome:
    """Compare as :func:`compare`, and count late records: first copies that have a higher number before them.

    :param sent: numbers in ascending order, each once.
    """
    outcome = compare(sent, acknowledged, log, faults=faults)
    newest, late = -1, 0
    for number in dict.fromkeys(log):
        late += number < newest
        newest = max(newest, number)
    return replace(outcome, late=late)
