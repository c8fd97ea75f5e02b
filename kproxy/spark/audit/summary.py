"""What came of an audit, small enough for one page: counts, sums, and the worst offenders."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from kproxy.spark.audit.catalogue import Severity

Cell: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """One finding: how many rows, and the worst of them."""

    name: str
    title: str
    severity: Severity
    meaning: str
    remedy: str
    count: int
    worst: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Records that are there twice, in a stretch of time; ``start`` is its beginning in UTC."""

    start: str
    repeated: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run."""

    run: str
    former_run: str | None
    at: str
    """When it began, UTC."""
    cluster: str
    """The bootstrap servers, and the id of the cluster where it has one."""
    topics: Sequence[str]
    options: Mapping[str, Cell]
    """What the run was asked for, by the names of the command's options."""
    oldest: Cell
    newest: Cell
    """Timestamps of the records that were judged, UTC; None if there are none."""
    outcomes: Sequence[AuditOutcome]
    totals: Mapping[str, int]
    """Batches, records and bytes that were judged, and how many topics and partitions there are."""
    visibility: Sequence[Row]
    """By topic and visibility: batches, records, bytes; of the largest topics."""
    protection: Sequence[Row]
    stable_offsets: Sequence[Row]
    """Of the partitions with the most records above it."""
    repeated_over_time: Sequence[Bucket]
    """A record that several findings name counts once."""
    not_looked_at: Sequence[str]
    """Findings that were not asked for."""

    def found(self, severity: Severity) -> Sequence[AuditOutcome]:
        """Findings of this severity that have rows."""
        return [each for each in self.outcomes if each.count and each.severity is severity]

    @property
    def broken(self) -> Sequence[AuditOutcome]:
        return self.found(Severity.BROKEN)

    @property
    def warnings(self) -> Sequence[AuditOutcome]:
        return self.found(Severity.WARNING)

    @property
    def is_judged(self) -> bool:
        """False if the transaction log cannot be read: nothing else was judged, and a count of 0 says nothing."""
        return not any(each.name == "unreadable_log" and each.count for each in self.outcomes)

    @property
    def verdict(self) -> str:
        """``held``, ``warnings`` or ``broken``."""
        return "broken" if self.broken else "warnings" if self.warnings else "held"

    @property
    def sentence(self) -> str:
        unknown = self.found(Severity.UNKNOWN)
        rest = f" Unknown: {_listed(unknown)}." if unknown else ""
        if self.broken:
            return f"Promises are broken: {_listed(self.broken)}.{rest}"
        if self.warnings:
            return f"Promises held, with warnings: {_listed(self.warnings)}.{rest}"
        return f"All promises held.{rest}"

    def as_json(self) -> dict[str, Any]:
        """The document ``summary.json``."""
        data = asdict(self)
        for outcome in data["outcomes"]:
            outcome["severity"] = outcome["severity"].value
        return {"verdict": self.verdict, "sentence": self.sentence, **data}


def _listed(outcomes: Sequence[AuditOutcome]) -> str:
    return ", ".join(f"{each.title.lower()} ({each.count:,})" for each in outcomes)


def plain(row: Mapping[str, Any]) -> Row:
    """A row of a table as JSON and pages have it: times in ISO 8601, numbers of seconds without noise."""
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Cell:
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return round(value, 4)
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)
