"""Summaries made by hand, with names that would break a page that does not escape them."""

from typing import Any

from kproxy.spark.audit.catalogue import Severity
from kproxy.spark.audit.summary import AuditOutcome, Bucket, Summary

EVIL = "<script>alert('$1$')</script>&\"orders\""


def outcome(name: str, severity: Severity, count: int = 0) -> AuditOutcome:
    worst = [{"topic": EVIL, "repeated": number, "at": None} for number in range(min(count, 2))]
    return AuditOutcome(name, f"Title of {name}", severity, "What it <means>.", "What to do & how.", count, worst)


def summary(broken: int = 0, warnings: int = 0, unknown: int = 0, **columns: Any) -> Summary:
    values: dict[str, Any] = {
        "run": "20261121T120000Z",
        "former_run": None,
        "at": "2026-11-21 12:00:00",
        "cluster": "kproxy:9092, cluster-1",
        "topics": [EVIL, "bills"],
        "options": {"--topics": "orders|bills", "--key": None, "--window": "10m"},
        "oldest": "2026-11-20 08:00:00",
        "newest": "2026-11-21 11:59:00",
        "outcomes": [
            outcome("first", Severity.BROKEN, broken),
            outcome("second", Severity.WARNING, warnings),
            outcome("third", Severity.UNKNOWN, unknown),
        ],
        "totals": {"batches": 10, "records": 1234, "bytes": 5 << 20, "topics": 2, "partitions": 8},
        "visibility": [
            {"topic": EVIL, "visibility": "committed", "batches": 5, "records": 1000, "bytes": 4 << 20},
            {"topic": EVIL, "visibility": "aborted", "batches": 4, "records": 200, "bytes": 1 << 19},
            {"topic": "bills", "visibility": "undecided", "batches": 1, "records": 34, "bytes": 1 << 19},
        ],
        "protection": [
            {"topic": EVIL, "bytes": 9 << 19, "unprotected_bytes": 9 << 18, "unprotected_share": 0.5},
            {"topic": "bills", "bytes": 1 << 19, "unprotected_bytes": 0, "unprotected_share": 0.0},
        ],
        "stable_offsets": [{"topic": EVIL, "partition": 0, "stable_offset": 5, "records_above": 34}],
        "repeated_over_time": [Bucket("2026-11-21 11:00:00", 5), Bucket("2026-11-21 11:01:00", 0)],
        "not_looked_at": ["duplicate_keys"],
    }
    return Summary(**{**values, **columns})
