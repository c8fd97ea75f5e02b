"""What an audit is asked for, and what is wrong with it; nothing here needs Spark."""

import json
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from kproxy.config import ExitCode, StartupError
from kproxy.spark.kafka_cluster import INTERNAL_TOPICS

#: Engines: chosen by ``audit_size.choose_engine``, in this process, or on Spark.
AUTO: Final = "auto"
DUCKDB: Final = "duckdb"
SPARK: Final = "spark"

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""By topic and partition."""

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_SECURITY: Final = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")


class Since(NamedTuple):
    """Where partitions begin that no former run has looked at; both None: at what the brokers still have."""

    time_ms: int | None = None
    offsets: Offsets | None = None


class Request(NamedTuple):
    """One run. Times in ms."""

    bootstrap: str
    brokers: str | None
    """Where the transaction log is read; None: at ``bootstrap``, too."""
    topics: str
    out: Path
    since: Since = Since()
    #: As it was given.
    since_text: str | None = None
    #: Whether what former runs have seen is forgotten.
    fresh: bool = False
    key: str | None = None
    run_length: int = 3
    window_ms: int = 600_000
    open_ms: int = 900_000
    prepared_ms: int = 3_600_000
    carry_ms: int = 7 * 86_400_000
    engine: str = AUTO
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    #: TLS and SASL, as options of the source.
    security: Mapping[str, str] = MappingProxyType({})

    def where(self) -> dict[str, str]:
        """The options of the source that name kproxy."""
        return {"kafka.bootstrap.servers": self.bootstrap, **self.security}

    def where_log(self) -> dict[str, str]:
        """The options of the source that name where the transaction log is read."""
        return {"kafka.bootstrap.servers": self.brokers or self.bootstrap, **self.security}

    def options(self) -> dict[str, str | int | bool | None]:
        """What was asked for, by the names of the command's options; what is None was not given."""
        return {
            "--topics": self.topics,
            "--brokers": self.brokers,
            "--since": self.since_text,
            "--fresh": self.fresh or None,
            "--key": self.key,
            "--run-length": self.run_length,
            "--window": duration_text(self.window_ms),
            "--open-limit": duration_text(self.open_ms),
            "--prepared-limit": duration_text(self.prepared_ms),
            "--carry": duration_text(self.carry_ms),
        }


def wrong(message: str) -> StartupError:
    """An error that nobody should try again without a change."""
    return StartupError(message, ExitCode.USAGE)


def duration_ms(text: str) -> int:
    """ms from 500ms, 30s, 10m, 2h or 7d. ValueError if it is none."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration; valid: 500ms, 30s, 10m, 2h, 7d")
    return int(match[1]) * _UNITS[match[2]]


def duration_text(ms: int) -> str:
    """The shortest text from which ``duration_ms`` reads the same time."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if ms % _UNITS[unit] == 0 and (ms or unit == "s"))
    return f"{ms // _UNITS[unit]}{unit}"


def read_command_config(file: Path) -> dict[str, str]:
    """Client settings of a properties file as options of the source, as ``--command-config`` of Kafka's tools has it.

    Those that name neither TLS nor SASL are left out. StartupError if the file can't be read.
    """
    try:
        lines = file.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(f"--command-config {file}: {getattr(error, 'strerror', None) or error}") from None
    pairs = (line.strip().partition("=") for line in lines if line.strip() and line.strip()[0] not in "#!")
    found = {f"kafka.{name.strip()}": value.strip() for name, _, value in pairs}
    return {name: value for name, value in found.items() if name.startswith(_SECURITY)}


def parse_since(text: str, now: datetime) -> Since:
    """A duration back from ``now``, an ISO 8601 time (UTC unless it says otherwise) or offsets as JSON.

    ValueError, with what would be valid, if it is none of them.
    """
    if text.lstrip().startswith("{"):
        return Since(offsets=_parse_offsets(text))
    if _SPAN.fullmatch(text.strip()):
        moment = now - timedelta(milliseconds=duration_ms(text))
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            valid = '2h, 2026-11-21T06:00:00, or {"topic": {"0": 1500}}'
            raise ValueError(f"{text!r} is no beginning; valid: {valid}") from None
    return Since(time_ms=int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _parse_offsets(text: str) -> Offsets:
    valid = 'valid: {"topic": {"0": 1500, "1": 20}}'
    try:
        return {topic: _partitions(rows) for topic, rows in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{text!r} are no offsets; {valid}") from None


def _partitions(rows: Any) -> dict[int, int]:
    found = {int(partition): offset for partition, offset in rows.items()}
    if not all(type(offset) is int and offset >= 0 and partition >= 0 for partition, offset in found.items()):
        raise ValueError
    return found


def choose_topics(words: str, existing: Collection[str]) -> list[str]:
    """The topics that are meant: names with commas between, or one regular expression for whole names.

    A pattern means no topic of the brokers' or of kproxy's own. StartupError if there is no such topic.
    """
    names = [word.strip() for word in words.split(",") if word.strip()]
    if names and all(_NAME.fullmatch(name) for name in names):
        missing = sorted(set(names) - set(existing))
        if missing:
            raise wrong(f"no such topic: {', '.join(missing)}; there are {_some(existing)}")
        return sorted(set(names))
    try:
        pattern = re.compile(words)
    except re.error as error:
        raise wrong(f"--topics {words!r} is no regular expression: {error}") from None
    found = sorted(name for name in existing if pattern.fullmatch(name) and not name.startswith(INTERNAL_TOPICS))
    if not found:
        raise wrong(f"no topic matches {words!r}; there are {_some(existing)}")
    return found


def _some(names: Collection[str]) -> str:
    shown = sorted(name for name in names if not name.startswith(INTERNAL_TOPICS))
    return (", ".join(shown[:10]) + (", ..." if len(shown) > 10 else "")) or "none"
