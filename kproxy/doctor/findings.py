"""What a check finds."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

_SHOWN: Final = 5


class Level(StrEnum):
    """How bad it is; in the order of the report's worst."""

    FAIL = "fail"
    """kproxy will not work, or not keep what it promises."""
    WARN = "warn"
    """It works, and something may go wrong."""
    SKIPPED = "skipped"
    """It could not be found out; the finding says why."""
    OK = "ok"


class Finding(NamedTuple):
    """One line of the report."""

    level: Level
    found: str
    #: What to do; empty where there is nothing to do.
    advice: str = ""


def ok(found: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, found)


def skipped(found: str, advice: str = "") -> Finding:
    """It could not be found out."""
    return Finding(Level.SKIPPED, found, advice)


def warn(found: str, advice: str) -> Finding:
    """Something may go wrong."""
    return Finding(Level.WARN, found, advice)


def fail(found: str, advice: str) -> Finding:
    """Something will."""
    return Finding(Level.FAIL, found, advice)


def listed(names: Iterable[object]) -> str:
    """The first five, and how many more there are."""
    words = [str(name) for name in names]
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
