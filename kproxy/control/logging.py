"""Structured logs on stderr: readable on a terminal, else one JSON object a line.

Every line has ``event``, ``level``, ``timestamp`` (ISO 8601, UTC) and ``subsystem``. Loggers are made by
``structlog.get_logger("kproxy.server")`` for the subsystem ``server``; each (``kproxy.config.log_levels.SUBSYSTEMS``)
may have a level of its own. The logging of libraries goes the same way, from warnings up.
"""

import logging
import sys
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from kproxy.config.process_options import LogOptions
from kproxy.config.values import LogLevelRule

_PREFIX = "kproxy."
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FIRST_KEYS = ("timestamp", "level", "subsystem", "event")


class RepeatLimit:
    """Logs each distinct warning or error only so often; the next line says how many were suppressed.

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
        """A structlog processor. DropEvent for a line above the limit."""
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


class _NamedLogger(structlog.WriteLogger):
    """Writes the lines of one subsystem."""

    def __init__(self, file: TextIO, subsystem: str) -> None:
        super().__init__(file)
        self.subsystem = subsystem


class _Weigh:
    """The first processor: drops lines below the level of their subsystem."""

    def __init__(self, level: str, overrides: Iterable[LogLevelRule]) -> None:
        self._level = _LEVELS[level]
        self._own = {rule.subsystem: _LEVELS[rule.level] for rule in overrides}
        self.lowest = min((self._level, *self._own.values()))

    def __call__(self, logger: _NamedLogger, method: str, event: EventDict) -> EventDict:
        subsystem = event.setdefault("subsystem", logger.subsystem)
        if _LEVELS.get(method, logging.ERROR) < self._own.get(subsystem, self._level):
            raise structlog.DropEvent
        return event


def configure_logging(
    level: str, log_format: str, stream: TextIO | None = None, overrides: Iterable[LogLevelRule] = ()
) -> None:
    """Set up the logging of the process, before the first line; may be called again, for loggers that exist, too.

    ``level``: debug, info, warning or error. ``log_format``: console, json or auto (console on a terminal).
    """
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    console = log_format == "console" or (log_format == "auto" and terminal)
    weigh = _Weigh(level, overrides)
    structlog.configure(
        processors=[
            weigh,
            RepeatLimit(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _order_keys,
            *_renderers(console, colors=terminal),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(weigh.lowest),
        logger_factory=lambda *names: _NamedLogger(stream, "".join(names[:1]).removeprefix(_PREFIX) or "kproxy"),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog(logging.WARNING)]


class Logs:
    """The logging of a running kproxy: set by its options, and by the control API until an option changes."""

    def __init__(self, config: LogOptions, stream: TextIO | None = None) -> None:
        """Sets it up; ``stream`` is stderr if not given."""
        self._stream = stream
        self._options = self._of(config)
        self.level, self.overrides, self._format = self._options
        self._configure()

    @staticmethod
    def _of(config: LogOptions) -> tuple[str, dict[str, str], str]:
        return config.log_level, dict(config.log_level_overrides), config.log_format

    def reconfigure(self, config: LogOptions) -> None:
        """Applies the options; if they are unchanged, levels set by the control API stay."""
        options = self._of(config)
        if options != self._options:
            self._options = options
            self.level, self.overrides, self._format = options
            self._configure()

    def set(self, level: str | None, subsystem: str | None = None) -> None:
        """Sets the level of one subsystem, or of all that have none of their own. None: as the options say."""
        overrides = dict(self.overrides)
        if subsystem is None:
            self.level = level or self._options[0]
        elif level is None:
            overrides.pop(subsystem, None)
        else:
            overrides[subsystem] = level
        self.overrides = overrides
        self._configure()

    def _configure(self) -> None:
        rules = [LogLevelRule(*item) for item in self.overrides.items()]
        configure_logging(self.level, self._format, self._stream, rules)


def _renderers(console: bool, colors: bool) -> list[Processor]:
    if console:
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


def _order_keys(logger: Any, method: str, event: EventDict) -> EventDict:
    return {key: event[key] for key in _FIRST_KEYS} | dict(event)
