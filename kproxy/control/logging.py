"""Structured logs on stderr: readable on a terminal, else one JSON object a line.

Every line has ``event``, ``level``, ``timestamp`` (ISO 8601, UTC) and ``subsystem``. Loggers are made by
``structlog.get_logger(subsystem="net")``. The logging of libraries goes the same way, from warnings up.
"""

import logging
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FIRST_KEYS = ("timestamp", "level", "subsystem", "event")


class RepeatLimit:
    """Lets each distinct warning or error through only so often; the next one tells how many were kept back.

    A client that reconnects ten times a second must not fill the disk with the same complaint.
    """

    def __init__(
        self, burst: int = 10, period: float = 60.0, clock: Callable[[], float] = monotonic, most_events: int = 1000
    ) -> None:
        """At most ``burst`` lines of one event in ``period`` seconds; ``most_events`` are remembered."""
        self._burst = burst
        self._period = period
        self._clock = clock
        self._most_events = most_events
        self._seen: dict[tuple[Any, Any], tuple[float, int]] = {}

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        """A structlog processor; raises DropEvent for what is one too many."""
        if method not in ("warning", "error"):
            return event
        key = (event.get("subsystem"), event["event"])
        if len(self._seen) >= self._most_events:
            self._seen.clear()  # texts that differ every time, as libraries write them, must not grow the table
        now = self._clock()
        began, count = self._seen.get(key, (now, 0))
        if now - began >= self._period:
            if count > self._burst:
                event["suppressed"] = count - self._burst
            began, count = now, 0
        self._seen[key] = (began, count + 1)
        if count >= self._burst:
            raise structlog.DropEvent
        return event


class _ToStructlog(logging.Handler):
    """Hands the records of libraries that use the standard library's logging to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(subsystem=record.name)
        log.log(max(record.levelno, logging.WARNING), record.getMessage(), exc_info=record.exc_info)


def configure_logging(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Set up the logging of the process; to be called once, before the first line.

    ``level``: debug, info, warning or error. ``log_format``: console, json or auto (console on a terminal).
    """
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    console = log_format == "console" or (log_format == "auto" and terminal)
    structlog.configure(
        processors=[
            RepeatLimit(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _order_keys,
            *_renderers(console, colors=terminal),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog(logging.WARNING)]


def _renderers(console: bool, colors: bool) -> list[Processor]:
    if console:
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


def _order_keys(logger: Any, method: str, event: EventDict) -> EventDict:
    event.setdefault("subsystem", "kproxy")
    return {key: event[key] for key in _FIRST_KEYS} | dict(event)
